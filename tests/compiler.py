"""Tests that need a C compiler, and compilers for tests.

Where there is one there must be a kernel: see test_build.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from noisin.recurrent.kernels import build


def has_compiler() -> bool:
    """Whether the kernel can be compiled here, whether or not it then works."""
    try:
        return bool(build._compiler())
    except build._Failed:
        return False


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="needs a C compiler")

# The compiler takes twenty seconds to inline everything, and one without.
CHEAP = "-O1 '-DINLINE=static __attribute__((noinline, unused))'"


def compiler_that(folder: Path, body: str) -> str:
    """A compiler of our own: a shell script."""
    folder.mkdir(exist_ok=True)
    script = folder / "cc"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    return str(script)


def cheap(folder: Path, compiler: str) -> str:
    """A compiler that does not take the time to optimize."""
    return compiler_that(folder, f'exec {compiler} "$@" {CHEAP}')
