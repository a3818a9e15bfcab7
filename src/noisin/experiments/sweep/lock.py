"""The lock under which one process at a time takes or adds tasks of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Self

from noisin._util.files import writing
from noisin._util.regular import open_regular
from noisin.errors import Unsupported

NAME = ".sweep-lock"


class SweepLock:
    """An exclusive lock on the folder of all sweeps; entering it waits until it is free.

    The operating system releases it when the process dies.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        import fcntl  # not on every system

        with writing(self.path):
            self._file = open_regular(self.path, "ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        except OSError as error:
            self.release()
            raise Unsupported(
                f"sweep: {self.path.parent} cannot be locked: {error.strerror}. Choose a folder on "
                f"a file system that supports locks."
            ) from error
        return self

    def release(self) -> None:
        """Release the lock; does nothing if it is released already."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __exit__(self, *_: object) -> None:
        self.release()
