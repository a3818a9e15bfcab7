"""The build hook of ``make wheel``: the C kernel inside the wheel, compiled for several processors.

It is off by default, and a wheel is pure Python and compiles its kernel on first use.
``HATCH_BUILD_HOOK_ENABLE_CUSTOM=true`` turns it on. ``CC`` is the compiler, which must be GCC, and
determines the architecture of the wheel: ``CC=aarch64-linux-gnu-gcc`` builds one for aarch64.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNELS = Path(__file__).parent / "src" / "noisin" / "recurrent" / "kernels"
PLACE = "noisin/recurrent/kernels/variants"  # in the wheel; prebuilt.py looks there
TARGETS = runpy.run_path(str(KERNELS / "targets.py"))
GLIBC = (2, 17)  # of 2012, older than any that torch runs with: the tag promises it
OPENMP = ("-fopenmp",)  # when compiling; not when linking, which would add a second runtime


class PrebuiltKernel(BuildHookInterface[BuilderConfig]):
    """Compiles each variant of the kernel into the wheel, and gives the wheel its platform tag."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; an editable install has the sources at hand and compiles on first use."""
        if version == "editable":
            return
        compiler = shlex.split(os.environ.get("CC", "cc"))
        architecture = architecture_of(compiler)
        self.scratch = tempfile.TemporaryDirectory()
        for name in TARGETS["ARCHITECTURES"][architecture]:
            library = compile_variant(compiler, name, Path(self.scratch.name))
            require_portable(library)
            build_data["force_include"][str(library)] = f"{PLACE}/{name}.so"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_{architecture}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what was compiled, which is in the wheel now."""
        if version != "editable":
            self.scratch.cleanup()


def architecture_of(compiler: list[str]) -> str:
    """The architecture that a compiler compiles for, if a wheel can be built for it."""
    machine = run([*compiler, "-dumpmachine"]).strip()
    architecture, known = machine.split("-")[0], TARGETS["ARCHITECTURES"]
    if architecture not in known or "linux-gnu" not in machine:
        raise ValueError(
            f"{shlex.join(compiler)} compiles for {machine}, and there are prebuilt kernels for "
            f"{' and '.join(known)} with Linux and glibc. Set CC to a GCC for one of them, or "
            f"build a wheel that compiles on first use: python -m build --wheel"
        )
    return str(architecture)


def compile_variant(compiler: list[str], name: str, folder: Path) -> Path:
    """Compile one variant; the baseline also tells the instruction sets of the processor."""
    sources = ["kernel.c", *(["features.c"] if name == TARGETS["BASELINE"] else [])]
    flags = [*TARGETS["FLAGS"], *OPENMP, *(f"-m{feature}" for feature in TARGETS["VARIANTS"][name])]
    objects = []
    for source in sources:
        objects.append(str(folder / f"{name}-{source}.o"))
        run([*compiler, *flags, "-c", str(KERNELS / source), "-o", objects[-1]])
    library = folder / f"{name}.so"
    run([*compiler, "-shared", "-s", *objects, "-o", str(library)])
    return library


def require_portable(library: Path) -> None:
    """Raise unless a library needs only the C library of the tag and some OpenMP runtime of GCC."""
    # All names that the dynamic linker looks for are in one table of zero-terminated strings.
    names = {*library.read_bytes().split(b"\0")}
    versions = {n.removeprefix(b"GLIBC_").decode() for n in names if n.startswith(b"GLIBC_")}
    new = {v for v in versions if not v[0].isdigit() or (*map(int, v.split(".")),) > (*GLIBC, 99)}
    files = {n.decode() for n in names if re.fullmatch(rb"lib[\w+-]+\.so[.\d]*", n)}
    other = sorted({*new, *files} - {"libc.so.6"})
    other += [n.decode() for n in sorted(names) if n.startswith(b"__kmpc_")]  # clang's OpenMP
    if other:
        raise ValueError(
            f"{library.name} needs {', '.join(other)}: a manylinux_{GLIBC[0]}_{GLIBC[1]} wheel may "
            f"need the C library up to that version and torch's OpenMP runtime. Compile with GCC, "
            f"on an older system."
        )


def run(command: list[str]) -> str:
    """What a command prints; its complaints are shown as they come."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
