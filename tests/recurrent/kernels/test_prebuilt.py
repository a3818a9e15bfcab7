"""The kernel inside a wheel: which variants there are, which is taken, without a compiler."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from noisin._util import processor
from noisin.recurrent.kernels import build, compiled, prebuilt
from noisin.recurrent.kernels.targets import ARCHITECTURES, BASELINE, VARIANTS
from tests.compiler import cheap, needs_compiler
from tests.pairwise import PRODUCTS
from tests.wheels import INSIDE, build_wheel, lacking, trial, unpack

MACHINE = platform.machine()
GCC = shutil.which("gcc")
pytestmark = pytest.mark.skipif(
    GCC is None or sys.platform != "linux" or MACHINE not in ARCHITECTURES,
    reason="prebuilt kernels are for Linux, and need GCC",
)
FEATURES = sorted({*chain(*VARIANTS.values())})


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of `make wheel`, except that it was compiled in no time."""
    assert GCC is not None
    folder = tmp_path_factory.mktemp("wheel")
    return build_wheel(folder, cheap(folder / "cheap", GCC))


@pytest.fixture(scope="module")
def variants(wheel: Path) -> Path:
    """The folder with the kernels of the wheel."""
    return unpack(wheel, wheel.parent / "unpacked") / INSIDE


def members(wheel: Path) -> tuple[dict[str, bytes], str]:
    """The contents of a wheel, and its tags."""
    with zipfile.ZipFile(wheel) as file:
        contents = {name: file.read(name) for name in file.namelist()}
    (tags,) = (text.decode() for name, text in contents.items() if name.endswith("/WHEEL"))
    return contents, tags


@pytest.mark.long
def test_the_wheel_has_each_variant_and_the_tag_of_its_platform(wheel: Path) -> None:
    contents, tags = members(wheel)
    binaries = {name for name, data in contents.items() if data.startswith(b"\x7fELF")}
    assert binaries == {f"{INSIDE}/{name}.so" for name in ARCHITECTURES[MACHINE]}
    assert {str(INSIDE.parent / name) for name in build.SOURCES} <= {*contents}  # other platforms
    assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{MACHINE}.whl")
    assert f"Tag: py3-none-manylinux_2_17_{MACHINE}\n" in tags
    assert "Root-Is-Purelib: false\n" in tags


def test_any_other_wheel_is_pure(tmp_path: Path) -> None:
    contents, tags = members(build_wheel(tmp_path))
    assert not any(name.endswith(".so") for name in contents)
    assert "Tag: py3-none-any\n" in tags
    assert "Root-Is-Purelib: true\n" in tags


@pytest.mark.long
@pytest.mark.parametrize("name", ARCHITECTURES.get(MACHINE, ()))
def test_the_tag_is_honest_and_no_openmp_runtime_is_named(name: str, variants: Path) -> None:
    """As binutils read the library: which hatch_build.py does not need."""
    readelf = ["readelf", "--wide", "--dynamic", "--version-info", str(variants / f"{name}.so")]
    found = subprocess.run(readelf, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"\(NEEDED\).*\[(.*)\]", found) == ["libc.so.6"]
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", found)}
    assert versions
    assert max(versions) <= (2, 17)


@pytest.mark.skipif(MACHINE != "x86_64", reason="elsewhere there is only the baseline")
def test_the_instruction_sets_are_those_that_the_system_reports(variants: Path) -> None:
    source = (build.HERE / "features.c").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^FEATURE\((\w+)\)$", source, re.MULTILINE)) == FEATURES
    found = prebuilt.supported(ctypes.CDLL(str(variants / f"{BASELINE}.so")))
    assert found == {*FEATURES} & {*processor.kind().split()}


@pytest.mark.skipif(not PRODUCTS, reason="`make wheel` and `make stress` try each variant")
@pytest.mark.parametrize("name", ARCHITECTURES.get(MACHINE, ()))
def test_each_variant_equals_the_reference(name: str, variants: Path) -> None:
    if lack := lacking(variants, name):
        pytest.skip(f"the processor has no {', '.join(lack)}")
    done = trial(variants / f"{name}.so")
    assert done.returncode == 0, done.stderr


def subsets() -> Iterator[set[str]]:
    """Every set of features that a processor might have."""
    for count in range(len(FEATURES) + 1):
        yield from map(set, combinations(FEATURES, count))


def test_no_variant_is_chosen_that_the_processor_cannot_run(tmp_path: Path) -> None:
    for name in VARIANTS:
        (tmp_path / f"{name}.so").touch()
    rank = [BASELINE, "avx2", "avx512"]
    for features in subsets():
        can = [name for name in rank if all(f in features for f in VARIANTS[name])]
        assert prebuilt.choose(features, tmp_path) == can[-1]
    (tmp_path / "avx512.so").unlink()
    assert prebuilt.choose(FEATURES, tmp_path) == "avx2"


# The features of a processor, the variant that it gets, and the floats in a vector of it.
PROCESSORS = {
    "old": ((), BASELINE, 4),
    "avx2 without fma": (("avx2",), BASELINE, 4),
    "avx2": (("avx2", "fma"), "avx2", 8),
    "part of avx512": (("avx2", "fma", "avx512f"), "avx2", 8),
    "avx512": (FEATURES, "avx512", 16),
}


@pytest.mark.skipif(MACHINE != "x86_64", reason="elsewhere there is only the baseline")
@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_processor_gets_the_widest_vectors_that_it_has(
    processor: str, variants: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """The library is loaded, which does not run it: this processor need not have the features."""
    features, name, lanes = PROCESSORS[processor]
    with caplog.at_level(logging.DEBUG, "noisin.kernels"):
        library = prebuilt.load(variants, features)
    assert library is not None
    assert caplog.messages == [f"The prebuilt C kernel runs, variant {name}."]
    monkeypatch.setattr(compiled, "library", lambda: library)
    assert compiled.tiling(torch.float32).block == 2 * lanes
    assert compiled.tiling(torch.float64).block == lanes
    monkeypatch.setattr(prebuilt, "FOLDER", variants)
    assert compiled.origin() == f"prebuilt {name}"


@pytest.mark.parametrize("present", [True, False])
def test_a_prebuilt_kernel_is_preferred_to_compiling(
    present: bool, variants: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, made = (ctypes.CDLL(str(variants / f"{BASELINE}.so")) for _ in range(2))
    monkeypatch.setattr(prebuilt, "load", lambda: kept if present else None)
    monkeypatch.setattr(build, "load", lambda: made)
    assert compiled.library.__wrapped__() is (kept if present else made)


def test_where_it_comes_from(monkeypatch: pytest.MonkeyPatch, variants: Path) -> None:
    monkeypatch.setattr(compiled, "library", lambda: None)
    assert compiled.origin() is None
    elsewhere = ctypes.CDLL(str(variants / f"{BASELINE}.so"))
    monkeypatch.setattr(compiled, "library", lambda: elsewhere)
    assert compiled.origin() == "compiled"


def test_a_library_that_cannot_be_loaded_leaves_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert prebuilt.load(tmp_path) is None  # a package without prebuilt kernels
    (tmp_path / f"{BASELINE}.so").write_bytes(b"\x7fELF")
    with caplog.at_level(logging.DEBUG, "noisin.kernels"):
        assert prebuilt.load(tmp_path) is None
    assert "The prebuilt C kernel cannot be loaded" in caplog.text


# Runs a layer with enough work for two threads, and reports the OpenMP runtimes of the process.
RUN = """
import json, logging, os, re, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
import torch, noisin
from noisin import kernels, noise
from noisin.recurrent.functional import Weights
torch.set_num_threads(2)
rnn = noisin.LSTM(64, 64, noise=noise.Gaussian(0.5))
rnn(torch.randn(9, 80, 64))[0].sum().backward()
if len(sys.argv) > 1:
    import ctypes
    ctypes.CDLL(sys.argv[1])
ones = torch.ones(1, 1)
with open("/proc/self/maps") as file:
    files = {line.split()[-1] for line in file if "/" in line}
openmp = r"lib(gomp|omp|iomp5)[^/]*[.]so[^/]*"
print(json.dumps({
    "file": noisin.__file__,
    "kernel": kernels.kernel_for(ones, ones, (ones, ones), Weights(ones, ones)),
    "origin": kernels.compiled.origin(),
    "openmp": sorted(f for f in files if re.fullmatch(openmp, os.path.basename(f))),
}))
"""


def process(*arguments: object, **environment: str) -> tuple[dict[str, Any], str]:
    """What a fresh process reports, and what it logs."""
    command = [sys.executable, "-c", RUN, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.long
def test_without_a_compiler_the_installed_wheel_runs_its_kernel(
    wheel: Path, variants: Path, tmp_path: Path
) -> None:
    """pip accepts its tag, nothing is compiled or cached, and there is one OpenMP runtime."""
    site, cache = tmp_path / "site", tmp_path / "cache"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"]
    subprocess.run([*pip, "--no-index", "--target", site, wheel], check=True)
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    settings = {"NOISIN_CACHE": str(cache), "NOISIN_GEMM": "mkl"}  # which measures nothing
    found, log = process(PYTHONPATH=str(site), PATH=str(nothing), **settings)
    best = next(name for name in VARIANTS if not lacking(variants, name))
    assert Path(found["file"]).parent == site / "noisin"
    assert (found["kernel"], found["origin"]) == ("c", f"prebuilt {best}")
    assert f"The prebuilt C kernel runs, variant {best}." in log
    assert not cache.exists()
    (openmp,) = found["openmp"]
    assert Path(openmp).is_relative_to(Path(torch.__file__).parent)


@pytest.mark.long
@needs_compiler
def test_the_compiled_kernel_has_the_same_openmp_runtime(tmp_path: Path) -> None:
    """And a second one would be seen: a copy of the first."""
    second = tmp_path / "libgomp-copy.so.1"
    (first,) = Path(torch.__file__).parent.glob("lib/libgomp*.so*")
    shutil.copyfile(first, second)
    found, _ = process(second, **os.environ)
    assert (found["kernel"], found["origin"]) == ("c", "compiled")
    assert found["openmp"] == sorted(map(str, (first, second)))
