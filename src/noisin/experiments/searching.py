"""Find the folders of runs below a folder, without walking a whole disk.

Links to folders are followed, each folder counts once, and the virtual file systems ``/proc``,
``/sys`` and ``/dev`` are left out. So are folders whose names begin with a dot: noisin writes a
folder under such a name and renames it when it is complete. A search that visits too many folders
without a run ends with a message, so that a mistyped path does not cost minutes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from noisin.errors import InvalidValue

MOST_FOLDERS = 10_000  # that are not runs themselves
MOST_NAMES = 1_000_000  # in all folders
PATIENCE = 5.0  # seconds between two notes
SYSTEM = ("/proc", "/sys", "/dev")

Found = tuple[Path, str | None]  # the folder of a run, and what is wrong with it as a folder


class FolderSearch:
    """A search for runs, in one folder after another.

    Args:
        note: called with the progress of a long search.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note, self._noted = note, time.monotonic()
        self._seen: set[tuple[int, int]] = set()
        self._folders = self._names = 0
        self._system = {_device(path) for path in SYSTEM} - {_device("/"), None}

    def below(self, root: Path) -> Iterator[Found]:
        """The folders of runs in ``root``, at any depth, and ``root`` itself if it is one."""
        left = [root]
        while left:
            folder = left.pop()
            try:
                status = folder.stat()
                place = status.st_dev, status.st_ino
                if place in self._seen or (status.st_dev in self._system and folder != root):
                    continue
                self._seen.add(place)
                with os.scandir(folder) as entries:
                    inside = {entry.name: _is_folder(entry) for entry in entries}
            except OSError as error:
                yield folder, f"{folder} cannot be read: {error.strerror}."
                continue
            self._count(root, folder, inside)
            if "config.json" in inside:
                yield folder, None
                inside.pop("checkpoints", None)
            elif "metrics.jsonl" in inside:
                yield folder, f"{folder} has metrics.jsonl but no config.json. Restore it."
            names = (name for name in sorted(inside, reverse=True) if name[0] != ".")
            left += [folder / name for name in names if inside[name]]

    def _count(self, root: Path, folder: Path, inside: dict[str, bool]) -> None:
        self._names += len(inside)
        self._folders += "config.json" not in inside
        if self._folders > MOST_FOLDERS or self._names > MOST_NAMES:
            raise InvalidValue(
                f"{root} is too large to search for runs: stopped in {folder}, after "
                f"{self._folders:,} folders without a run and {self._names:,} names. Name the "
                f"folder that contains the runs, such as runs."
            )
        if time.monotonic() - self._noted > PATIENCE:
            self._noted = time.monotonic()
            self._note(f"searching {folder} for runs, {self._folders:,} folders so far.")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a circular link
        return False


def _device(path: str) -> int | None:
    try:
        return os.stat(path).st_dev
    except OSError:
        return None
