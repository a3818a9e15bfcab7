"""Compile the C kernel on first use, into the user's cache, and trust it only after a trial.

The cache key is made of all that the machine code and its trial depend on: sources, flags, compiler
and processor. A library gets its final name after it has reproduced the reference in a process of
its own (an illegal instruction cannot be caught), so one that has that name can be loaded. The name
also contains the hash of the contents. Any user who can write to the cache can run code as its
owner: where another user could, nothing is loaded from it (see :mod:`noisin._util.trust`).
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from noisin._util import processor, trust
from noisin.recurrent.kernels.targets import FLAGS as FLAGS

logger = logging.getLogger("noisin.kernels")
Found = TypeVar("Found")

HERE = Path(__file__).parent
SOURCES = ("kernel.c", "cells.h", "steps.h", "projection.h", "tiles.h", "gemm.h", "trial.py")
SECONDS = 300  # ten on an idle machine
COMPILER = {"LC_ALL": "C"}  # its version is part of the key, whatever the language of its messages
# Threads, too, are tried. They sleep while they wait: other work may need the cores.
TRIAL = {
    "NOISIN_KERNEL": "c",
    "NOISIN_GEMM": "c",
    "OMP_NUM_THREADS": "2",
    "OMP_WAIT_POLICY": "passive",
}
WRONG = 3  # what the trial exits with if the kernel does not reproduce the reference


class _Failed(Exception):
    """Why there is no compiled kernel; the eager one runs instead."""


class _FailedTrial(_Failed):
    """The kernel was compiled and does not work: not to be expected on any machine."""


def compiled() -> Path | None:
    """The path of a library that works on this machine, compiled if necessary."""
    return _attempt(_cached)


def load() -> ctypes.CDLL | None:
    """A library that works on this machine, compiled if necessary."""
    return _attempt(_loaded)


def _attempt(find: Callable[[], Found]) -> Found | None:
    """What ``find`` finds, or None where there is no compiled kernel."""
    try:
        return find()
    except trust.Untrusted as error:
        warnings.warn(
            f"The C kernel is not used, the slower eager kernel runs: {error} Code in the cache "
            f"could be replaced. Set NOISIN_CACHE to a folder that only you can write.",
            RuntimeWarning,
            stacklevel=4,
        )
    except _FailedTrial as error:
        logger.warning("The slower eager kernel runs because %s Please report it.", error)
    except (_Failed, OSError, RuntimeError, subprocess.SubprocessError) as error:
        # RuntimeError: there is no home folder
        logger.debug("The eager kernel runs because the C kernel cannot: %s", error)
    return None


def _loaded() -> ctypes.CDLL:
    """Load exactly the bytes that were checked, by their descriptor."""
    for _ in range(2):
        path = _cached()
        descriptor = trust.open_file(path)
        if path.stem.endswith(_digest(descriptor)):
            # It stays open: the dynamic loader knows libraries by name, and so by this number.
            name = f"/proc/self/fd/{descriptor}"
            return ctypes.CDLL(name if os.path.exists(name) else str(path))
        os.close(descriptor)
        path.unlink()  # damaged: compile it again
    raise _Failed(f"{path} does not contain what was written to it.")


def _digest(descriptor: int) -> str:
    with open(descriptor, "rb", closefd=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def _cached() -> Path:
    compiler = _compiler()
    folder = trust.cache_folder("kernels")
    key = _key(compiler)
    for path in sorted(folder.glob(f"{key}-*.so")):
        return path
    wrong = folder / f"{key}.wrong"
    if wrong.exists():  # compiling it again would take as long and give the same
        raise _FailedTrial(f"the C kernel is wrong on this machine ({wrong} remembers it).")
    logger.info("Compiling the C kernel, once on this machine. It takes about half a minute.")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        library = Path(scratch) / "kernel.so"
        command = [*compiler, *_flags(), str(HERE / "kernel.c"), "-o", str(library)]
        _run(command, "the compiler", COMPILER | {"TMPDIR": scratch})
        library.chmod(0o600)
        _try(library, wrong)
        descriptor = trust.open_file(library)
        final = folder / f"{key}-{_digest(descriptor)}.so"
        os.close(descriptor)
        os.replace(library, final)  # atomic: another process sees all of it or nothing
    return final


def _try(library: Path, wrong: Path) -> None:
    """Raise unless the library reproduces the reference; if it does not, ``wrong`` remembers it."""
    command = [*trust.python("noisin.recurrent.kernels.trial"), str(library)]
    done = _process(command, TRIAL)
    if done.returncode == WRONG:
        wrong.touch()
    if done.returncode != 0:
        raise _FailedTrial(_end_of("the trial of the C kernel", done))


def _compiler() -> list[str]:
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        path = shutil.which(name) if name else None
        if path:
            return [path]
    raise _Failed("no C compiler was found (CC, cc, gcc, clang).")


def _flags() -> list[str]:
    native = "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
    openmp = ["-fopenmp"] if sys.platform == "linux" else []
    return [*FLAGS, "-shared", native, *openmp]


def _key(compiler: list[str]) -> str:
    version = _run([*compiler, "--version"], "the compiler", COMPILER)
    sources = [(HERE / name).read_bytes() for name in SOURCES]
    texts = [*_flags(), *compiler, version, processor.kind()]
    parts = [*sources, *(text.encode(errors="surrogateescape") for text in texts)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def _run(command: list[str], what: str, settings: dict[str, str] | None = None) -> str:
    done = _process(command, settings or {})
    if done.returncode != 0:
        raise _Failed(_end_of(what, done))
    return done.stdout


def _process(command: list[str], settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=SECONDS,
        env=os.environ | settings,
        check=False,
    )


def _end_of(what: str, done: subprocess.CompletedProcess[str]) -> str:
    return f"{what} ended with {done.returncode}: {done.stderr.strip()[-500:]}".rstrip(": ") + "."
