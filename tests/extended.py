"""A copy of the sources with something added, to show that an addition needs no other change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"


@contextmanager
def extended(folder: Path, insertions: Mapping[str, tuple[str, str]]) -> Iterator[dict[str, str]]:
    """Copy ``src/`` into a folder, insert text, and yield an environment that imports the copy.

    Args:
        folder: where the copy is made, as ``folder/src``.
        insertions: by file, as seen from ``src/noisin``: an anchor, which must occur exactly once,
            and the text to insert right before it. A file that does not exist is created with the
            text, for an empty anchor.
    """
    copy = folder / "src"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name, (anchor, insertion) in insertions.items():
        path = copy / "noisin" / name
        text = path.read_text(encoding="utf-8") if anchor else ""
        assert not anchor or text.count(anchor) == 1, f"{name} has {text.count(anchor)} × {anchor}"
        path.write_text(text.replace(anchor, insertion + anchor, 1), encoding="utf-8")
    yield os.environ | {"PYTHONPATH": str(copy)}


def run(env: Mapping[str, str], *arguments: str, cwd: Path | None = None) -> str:
    """What ``python ARGUMENTS`` prints in such an environment, where it must succeed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=dict(env),
        cwd=cwd,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
