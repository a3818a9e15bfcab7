"""Ids on disk, identified by the content of the text rather than by its path.

An entry is one file: the ids of train, valid and test; a JSON tail with their lengths and the
words; the length of the tail; the sha256 of all of it. It is written under a temporary name and
renamed, so that several processes can use the cache. An entry that does not match its hash, or
belongs to another user, is rebuilt. Partial files of a killed process are removed by a later one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from noisin._util import places, trust
from noisin.data.vocab import Vocabulary
from noisin.errors import InvalidType, NoisinError, Unavailable

FORMAT = 1
ID = np.dtype("<i4")
STALE = 3600.0  # seconds without a change until a file being written is considered abandoned
_HASH, _COUNT = hashlib.sha256().digest_size, 8

Ids = NDArray[np.int32]


def require_ids(where: str, ids: object) -> None:
    """Raise unless ``ids`` is a one-dimensional array of integers."""
    if not isinstance(ids, np.ndarray):
        raise InvalidType(
            f"{where}: expected a numpy array of ids, got {type(ids).__name__}. Convert it with "
            f"numpy.asarray."
        )
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InvalidType(
            f"{where}: expected a one-dimensional array of ids, got {ids.dtype} of shape "
            f"{ids.shape}."
        )


@dataclass(frozen=True)
class Entry:
    """The vocabulary, and the ids of train, valid and test."""

    vocab: Vocabulary
    ids: tuple[Ids, Ids, Ids]


def entry_path(key: str) -> Path:
    """The path of the entry with that key."""
    return places.cache() / "ids" / f"{key}-{FORMAT}.ids"


def remove_stale(folder: Path, pattern: str) -> None:
    """Remove unfinished files that have not changed for a long time.

    If their writer is still alive, it finds them missing and continues without the cache.
    """
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE:
                path.unlink()


def store(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Write a file completely or not at all."""
    places.made(path.parent)
    remove_stale(path.parent, ".new-*")
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
        try:
            write(file)
            file.flush()
            os.replace(file.name, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


class Writer:
    """Writes an entry piece by piece, without keeping the pieces in memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._digest = file, hashlib.sha256()

    def _put(self, piece: bytes) -> None:
        self._digest.update(piece)
        self._file.write(piece)

    def put(self, ids: Ids) -> None:
        """Append ids."""
        self._put(ids.astype(ID, copy=False).tobytes())

    def close(self, lengths: list[int], words: list[str]) -> None:
        """Append the tail."""
        tail = json.dumps({"lengths": lengths, "words": words}).encode()
        self._put(tail)
        self._put(len(tail).to_bytes(_COUNT, "little"))
        self._file.write(self._digest.digest())


def load(file: IO[bytes]) -> Entry | None:
    """Map the entry into memory, or return None if it is not as it was written."""
    end = file.seek(0, os.SEEK_END) - _HASH - _COUNT
    if end < 0 or not _is_whole(file, end + _COUNT):
        return None
    file.seek(end)
    length = int.from_bytes(file.read(_COUNT), "little")
    if length > end:
        return None
    file.seek(end - length)
    try:
        tail = json.loads(file.read(length))
        ids = np.memmap(file, ID, mode="r", shape=(sum(tail["lengths"]),))
        train, valid, test = np.split(ids, np.cumsum(tail["lengths"])[:-1])
        entry = Entry(Vocabulary(tuple(tail["words"])), (train, valid, test))
    except (ValueError, LookupError, TypeError, RecursionError):  # intact, but not ours
        return None
    in_range = not len(ids) or (ids.min() >= 0 and ids.max() < len(entry.vocab))
    return entry if in_range else None


def _is_whole(file: IO[bytes], size: int) -> bool:
    digest = hashlib.sha256()
    file.seek(0)
    while size > 0 and (block := file.read(min(size, 2**20))):
        digest.update(block)
        size -= len(block)
    return size == 0 and file.read() == digest.digest()


def get(key: str) -> Entry | None:
    """The entry with that key, or None if it is missing, unreadable or damaged."""
    try:
        with open(trust.open_file(entry_path(key)), "rb") as file:
            return load(file)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home directory
        return None


def put(key: str, write: Callable[[Writer], None]) -> Entry:
    """Write an entry and map it. Without a writable cache, it exists as long as its arrays do."""
    try:
        store(entry_path(key), lambda file: write(Writer(file)))
        entry = get(key)
        if entry is not None:
            return entry
        problem = "what was written to it cannot be read back"
    except NoisinError:
        raise  # the text itself is invalid
    except (OSError, RuntimeError) as error:
        problem = str(error)
    warnings.warn(
        f"The cache cannot be used, so the text will be read again each time: {problem}. "
        f"Set NOISIN_CACHE to a writable folder.",
        RuntimeWarning,
        stacklevel=4,
    )
    return _put_aside(write)


def _put_aside(write: Callable[[Writer], None]) -> Entry:
    try:
        with tempfile.TemporaryFile() as file:  # it has no name, so the system removes it
            write(Writer(file))
            file.flush()
            entry = load(file)
    except NoisinError:
        raise
    except OSError as error:
        raise Unavailable(
            f"No space for the ids, neither in the cache nor in the temporary folder: {error}. "
            f"Set NOISIN_CACHE to a writable folder."
        ) from None
    if entry is None:
        raise Unavailable("A temporary file does not contain what was written. Check the disk.")
    return entry
