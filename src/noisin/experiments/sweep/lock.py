"""The lock under which one process at a time takes or adds tasks of a sweep."""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from filelock import lock_descriptor

from noisin._util.files import write_synced, writing
from noisin._util.regular import open_regular, read_regular
from noisin.errors import Unsupported

NAME, PLACE = ".sweep-lock", ".sweep-place"


def place_of(folder: Path) -> str:
    """Identifies a folder, on whichever machine it is visible: a file in it contains the name."""
    path = folder / PLACE
    with writing(path):
        if not path.exists():
            new = folder / f".new-{uuid.uuid4().hex}"
            write_synced(new, f"{socket.gethostname()} {uuid.uuid4().hex}\n".encode())
            with suppress(FileExistsError):  # another process was faster
                os.link(new, path)
            new.unlink()
        return read_regular(path, 1000).decode("utf-8", "replace").strip()


class SweepLock:
    """An exclusive lock on the folder of all sweeps; entering it waits until it is free.

    The operating system releases it when the process dies.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        with writing(self.path):
            self._file = open_regular(self.path, "ab")
        try:
            lock_descriptor(self._file.fileno(), poll_interval=0.01)
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
