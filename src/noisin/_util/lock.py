"""One process per run folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import lock_descriptor

from noisin._util.files import writing
from noisin._util.regular import open_regular
from noisin.errors import Unsupported

NAME = ".lock"


class Busy(Unsupported):
    """Another process holds the lock of a run folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder, or raise. The system releases it when the process dies."""
    path = folder / NAME
    with writing(path):
        file = open_regular(path, "a+b")
    with file:
        try:
            free = lock_descriptor(file.fileno(), blocking=False)
        except OSError as error:
            raise Unsupported(
                f"training: {folder} cannot be locked: {error.strerror}. Choose a folder on a "
                f"local disk."
            ) from error
        if not free:
            file.seek(0)
            holder = file.read(20).decode("ascii", "replace").strip() or "unknown"
            raise Busy(
                f"training: another process (PID {holder}) is using {folder}. Wait until "
                f"it ends, or choose another folder."
            )
        with writing(path):
            file.truncate(0)
            file.write(f"{os.getpid()}\n".encode())
            file.flush()
        yield
