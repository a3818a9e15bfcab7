"""Compile the C kernel on first use, into the user's cache, and trust it only after a trial.

The cache key is made of all that the machine code depends on: source, flags, compiler and
processor. A library gets its final name after it has reproduced the reference in a process of its
own (an illegal instruction cannot be caught), so one that has that name can be loaded.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from noisin import places

logger = logging.getLogger("noisin.kernels")

HERE = Path(__file__).parent
SOURCES = ("kernel.c", "cells.h", "tiles.h")
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-fno-math-errno")
SECONDS = 120
# Threads, too, are tried. They sleep while they wait: other work may need the cores.
TRIAL = {"NOISIN_KERNEL": "c", "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}


class _Failed(Exception):
    """Why there is no compiled kernel; the eager one runs instead."""


def compiled() -> Path | None:
    """The path of a library that works on this machine, compiled if need be."""
    try:
        return _cached()
    except (_Failed, OSError, RuntimeError, subprocess.SubprocessError) as error:
        # RuntimeError: there is no home folder
        logger.debug("The eager kernel runs, for the C kernel cannot: %s", error)
        return None


def _cached() -> Path:
    compiler = _compiler()
    folder = _folder()
    final = folder / f"{_key(compiler)}.so"
    if final.exists():
        return _owned(final)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        library = Path(scratch) / "kernel.so"
        _run([*compiler, *_flags(), str(HERE / "kernel.c"), "-o", str(library)], "the compiler")
        _run([sys.executable, "-m", "noisin.kernels.trial", str(library)], "the trial", TRIAL)
        os.replace(library, final)  # atomic: another process sees all of it or nothing
    return final


def _compiler() -> list[str]:
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        path = shutil.which(name) if name else None
        if path:
            return [path]
    raise _Failed("no C compiler was found (CC, cc, gcc, clang).")


def _flags() -> list[str]:
    native = "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
    openmp = ["-fopenmp"] if sys.platform == "linux" else []
    return [*FLAGS, native, *openmp]


def _key(compiler: list[str]) -> str:
    version = _run([*compiler, "--version"], "the compiler")
    parts = [*((HERE / name).read_text() for name in SOURCES), *_flags(), *compiler, version]
    return hashlib.sha256("\0".join([*parts, _processor()]).encode()).hexdigest()[:32]


def _processor() -> str:
    """The processor and its instruction sets, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    kept = ("flags", "Features", "model name", "cpu family", "model\t")
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(kept)))


def _folder() -> Path:
    """The user's own cache folder: whoever can write to it can run code as the user."""
    folder = places.cache() / "kernels"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _owned(folder)
    folder.chmod(0o700)
    return folder


def _owned(path: Path) -> Path:
    found = path.lstat()
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        raise _Failed(f"{path} belongs to another user.")
    if stat.S_ISLNK(found.st_mode):
        raise _Failed(f"{path} is a symbolic link.")
    return path


def _run(command: list[str], what: str, settings: dict[str, str] | None = None) -> str:
    environment = os.environ | (settings or {})
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env=environment, check=False
    )
    if done.returncode != 0:
        raise _Failed(f"{what} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout
