"""Where this package caches what it can recreate: compiled kernels, texts and their ids.

Without platformdirs, because the layers use it for their kernels, and need torch and numpy alone.
"""

from __future__ import annotations

import os
from pathlib import Path


def cache() -> Path:
    """``NOISIN_CACHE``, else ``noisin`` in the user's cache folder.

    Raises:
        RuntimeError: the user has no home directory.
    """
    if place := os.environ.get("NOISIN_CACHE"):
        return Path(place)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "noisin"


def made(folder: Path) -> Path:
    """Create missing folders, accessible to the user only (as XDG requires); return the last."""
    for place in (*reversed(folder.parents), folder):
        place.mkdir(mode=0o700, exist_ok=True)
    return folder
