"""Open regular files only.

Opening a FIFO blocks until another process opens its other end, and a device may be endless. Every
file whose name is fixed, such as those of a record, is therefore opened by :func:`open_regular`.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO, Literal

# Do not wait for the other end of a FIFO, and do not take over a terminal. Not on every system.
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_MODES = {
    "rb": os.O_RDONLY,
    "wb": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "ab": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "a+b": os.O_RDWR | os.O_CREAT | os.O_APPEND,
}
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


Mode = Literal["rb", "wb", "ab", "a+b"]


class NotRegular(OSError):
    """A path leads to neither a regular file nor a folder."""

    def __init__(self, path: str | os.PathLike[str], kind: str) -> None:
        super().__init__(errno.ENXIO, f"Expected a regular file, got {kind}", str(path))


def open_regular(path: str | Path, mode: Mode = "rb") -> IO[bytes]:
    """Open a regular file in binary mode; raise ``OSError`` immediately for anything else."""
    try:
        descriptor = os.open(path, _MODES[mode] | _FLAGS, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a FIFO opened for writing without a reader
            raise NotRegular(path, _kind(os.stat(path).st_mode)) from None
        raise
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(descriptor, mode, encoding=None)  # all modes are binary
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise NotRegular(path, _kind(kind))


def read_regular(path: str | Path, most: int | None = None) -> bytes:
    """Read a regular file; raise without reading it if it has more than ``most`` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise OSError(errno.EFBIG, f"It has {size:,} bytes, and at most {most:,} are expected")
        return file.read()


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something else")
