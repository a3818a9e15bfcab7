"""Memory that was freed, given back to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any


def give_back() -> None:
    """Return freed memory to the system, where the C library would keep it.

    Batches of many lengths leave holes of many sizes, and glibc keeps the pages in them: a process
    that had trained on `nottingham` for a hundred epochs had 4 GB, and used 0.6 GB at most.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], Any] | None:
    """The function of glibc; None with another C library."""
    try:
        found: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    return found
