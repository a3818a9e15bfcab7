"""One process at a time decides, in a folder that several work in."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Self

from noisin._util.files import writing
from noisin._util.regular import open_regular
from noisin.errors import Unsupported

NAME = ".sweep-lock"


class Turn:
    """Wait until nobody else decides, and keep the others waiting until released.

    The system lets go of it when a process dies.
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
                f"a disk that knows locks."
            ) from error
        return self

    def release(self) -> None:
        """Let the next one. Once is enough, twice does no harm."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __exit__(self, *_: object) -> None:
        self.release()
