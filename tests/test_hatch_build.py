"""The build hook of ``make wheel``: what it refuses, and wheels for another architecture."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import hatch_build
from noisin.recurrent.kernels import build
from tests.compiler import cheap, compiler_that
from tests.recurrent.kernels import test_sanitized
from tests.wheels import INSIDE, build_wheel

CROSS = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64"
AARCH64 = 183  # EM_AARCH64 in the header of an ELF file
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs GCC")
needs_cross = pytest.mark.skipif(shutil.which(CROSS) is None, reason=f"needs {CROSS}")
needs_emulator = pytest.mark.skipif(shutil.which(EMULATOR) is None, reason=f"needs {EMULATOR}")


NAMES = {
    b"libc.so.6\0GLIBC_2.2.5\0GLIBC_2.17\0GOMP_parallel": None,
    b"GLIBC_2.18": "2.18",
    b"GLIBC_2.34": "2.34",
    b"GLIBC_ABI_DT_RELR": "ABI_DT_RELR",
    b"libgomp.so.1": "libgomp.so.1",
    b"libgomp-a34b3233.so.1.0.0": "libgomp-a34b3233.so.1.0.0",
    b"libm.so.6": "libm.so.6",
    b"__kmpc_fork_call": "__kmpc_fork_call",
}


@pytest.mark.parametrize("names", NAMES)
def test_a_library_that_needs_more_than_the_tag_promises_is_refused(
    names: bytes, tmp_path: Path
) -> None:
    library = tmp_path / "avx2.so"
    library.write_bytes(b"\x7fELF\0" + names + b"\0")
    if (needed := NAMES[names]) is None:
        hatch_build.require_portable(library)
    else:
        with pytest.raises(ValueError, match=f"needs {re.escape(needed)}: a manylinux_2_17"):
            hatch_build.require_portable(library)


@needs_gcc
def test_a_library_that_is_linked_with_openmp_is_refused(tmp_path: Path) -> None:
    library, compiler = tmp_path / "kernel.so", cheap(tmp_path / "cheap", "gcc")
    sources = [str(build.HERE / "kernel.c"), "-o", str(library)]
    subprocess.run([compiler, *build.FLAGS, "-shared", "-fopenmp", *sources], check=True)
    with pytest.raises(ValueError, match="libgomp.so.1"):
        hatch_build.require_portable(library)


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    for machine in ("riscv64-linux-gnu", "x86_64-w64-mingw32", "x86_64-linux-musl"):
        compiler = compiler_that(tmp_path, f"echo {machine}")
        with pytest.raises(ValueError, match=f"compiles for {machine}, and there are"):
            hatch_build.architecture_of([compiler])


def test_the_hook_needs_only_the_standard_library_of_the_package() -> None:
    """An isolated build has neither torch nor what is installed beside it."""
    code = f"import runpy; runpy.run_path({str(build.HERE / 'targets.py')!r})"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


def test_an_editable_install_has_nothing_prebuilt(tmp_path: Path) -> None:
    """Its sources may change, and a library that does not follow them would be wrong."""
    data: dict[str, object] = {"force_include": {}}
    hook = hatch_build.PrebuiltKernel(str(tmp_path), {}, None, None, str(tmp_path), "wheel")
    hook.initialize("editable", data)
    hook.finalize("editable", data, "")
    assert data == {"force_include": {}}


@needs_cross
def test_a_wheel_for_aarch64(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, cheap(tmp_path / "cheap", CROSS))
    assert wheel.name.endswith("-py3-none-manylinux_2_17_aarch64.whl")
    with zipfile.ZipFile(wheel) as file:
        binaries = [name for name in file.namelist() if name.endswith(".so")]
        assert binaries == [f"{INSIDE}/baseline.so"]
        header = file.read(binaries[0])[:20]
    assert header.startswith(b"\x7fELF")
    assert int.from_bytes(header[18:20], "little") == AARCH64


@needs_cross
@needs_emulator
def test_the_kernel_is_right_on_aarch64(tmp_path: Path) -> None:
    """The driver of the sanitized tests, without sanitizers, compares it with plain loops."""
    program = tmp_path / "driver"
    sources = [str(test_sanitized.HERE / "driver.c"), str(build.HERE / "kernel.c")]
    options = ["-fopenmp", "-static", "-lm", "-o", str(program)]
    command = [CROSS, *test_sanitized.FLAGS, *sources, *options]
    subprocess.run(command, check=True, capture_output=True)
    done = test_sanitized.run(Path(EMULATOR), program, "pairwise", 1, 100)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) >= 200
