"""The software and hardware of a run. Nothing here needs torch."""

from __future__ import annotations

import os
import platform
import reprlib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from noisin.errors import InvalidValue

MOST_THREADS = 1024  # with many more, torch crashes
PACKAGES = ("torch", "numpy", "safetensors", "pydantic")


def environment(threads: int, device: str) -> dict[str, Any]:
    """Versions, processor, threads and device."""
    import noisin

    versions = {"noisin": noisin.__version__, "python": platform.python_version()}
    return {
        "versions": versions | {name: _version(name) for name in PACKAGES},
        "system": platform.platform(),
        "processor": processor(),
        "cores": cores(),
        "threads": threads,
        "device": device,
    }


def require_threads(source: str, count: object, remedy: str) -> int:
    """Return a valid number of threads, or raise with its source and a remedy."""
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_THREADS:
        raise InvalidValue(
            f"{source}: the number of threads must be a whole number from 1 to {MOST_THREADS}, "
            f"got {reprlib.repr(count)}. {remedy}"
        )
    return count


def cores() -> int | None:
    """The number of cores that this process may use; None if it is not known."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def processor() -> str:
    """The name of the processor, or its architecture if the name is not known."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of an environment that differ when a run is continued."""
    return {name: value for name, value in now.items() if before.get(name) != value}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
