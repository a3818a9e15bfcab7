"""One process per run folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from noisin._util.files import writing
from noisin._util.regular import open_regular
from noisin.errors import Unsupported

NAME = ".lock"


class Busy(Unsupported):
    """Another process holds the lock of a run folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder, or raise. The system releases it when the process dies."""
    import fcntl  # not available on every system

    path = folder / NAME
    with writing(path):
        file = open_regular(path, "a+b")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise Unsupported(
                    f"training: {folder} cannot be locked: {error.strerror}. Choose a folder on a "
                    f"local disk."
                ) from error
            file.seek(0)
            holder = file.read(20).decode("ascii", "replace").strip() or "unknown"
            raise Busy(
                f"training: another process (PID {holder}) is using {folder}. Wait until "
                f"it ends, or choose another folder."
            ) from None
        with writing(path):
            file.truncate(0)
            file.write(f"{os.getpid()}\n".encode())
            file.flush()
        yield
