"""Files that a crash cannot leave half-written.

A file or folder is written under another name, synced to disk, and renamed. A file with the final
name is therefore complete at any moment, even after a power failure.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from noisin._util.regular import open_regular
from noisin.errors import Unavailable

_NO_SUCH_PLACE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG}
_NO_SUCH_PLACE |= {errno.ENXIO}  # a FIFO or a device


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` into one that names the file and states that nothing is lost."""
    try:
        yield
    except Unavailable:
        raise
    except OSError as error:
        what = f"cannot write {path}: {error.strerror or error}."
        if error.errno in _NO_SUCH_PLACE:
            raise Unavailable(f"{what} Choose another place.") from error
        raise Unavailable(
            f"{what} Everything saved before is intact: free some space or allow writing, and "
            f"run the same command again."
        ) from error


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file and wait until it is on disk."""
    with open_regular(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the entries of a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the content of ``path``, completely or not at all."""
    new = path.with_name(f".new-{path.name}")
    with writing(path):
        try:
            write_synced(new, content)
            new.replace(path)
            sync_folder(path.parent)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            raise


def sha256(content: bytes) -> str:
    """The hash of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
