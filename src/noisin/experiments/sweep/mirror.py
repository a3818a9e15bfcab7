"""Copies of run folders at a URL, for machines that share no disk.

A worker trains in a folder of its own machine. After each checkpoint it copies what is new to

    URL/SWEEP/.working/RUN/FENCE/SHA256         the files, by the hash of their content
    URL/SWEEP/.working/RUN/FENCE/manifest.json  their names; written last

where the fence is that of its lease: no two workers ever write to the same place, and a worker that
was thought dead cannot change what its successor reads. A worker that takes the run over continues
from the newest manifest, bit for bit. Once a run has ended in the database, its files are copied to
``URL/SWEEP/RUN``, where they are a record like any other. A record that is complete there is final:
it is never written again, and the run has no working copy any more.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

import fsspec

from noisin._util import places
from noisin._util.files import sha256, write_synced, writing
from noisin._util.lock import NAME as LOCK
from noisin._util.regular import read_regular
from noisin.errors import NoisinError, Unavailable, Unsupported
from noisin.experiments.sweep.address import hidden, without_secrets
from noisin.experiments.sweep.outcome import ENDS

MANIFEST, WORKING = "manifest.json", ".working"
SUMMARY = "summary.json"  # the file that completes a record
LAST = (SUMMARY, *(f"{end}.json" for end in ENDS))  # the files that end a record
# Stores of objects: no folder has to be created, and to create the first one is to create a bucket.
_OBJECTS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "cos", "obs", "r2"}
_FINAL = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)


class OutOfReach(Unavailable):
    """A URL cannot be used.

    Args:
        message: what is wrong.
        is_final: whether it is not worth trying again in a while.
    """

    def __init__(self, message: str, is_final: bool = True) -> None:
        super().__init__(message)
        self.is_final = is_final


def is_url(out: str) -> bool:
    """Whether ``--out`` is a URL instead of a folder.

    >>> [is_url(out) for out in ("s3://bucket/runs", "file:///disk/runs", "runs", "/a/b:c")]
    [True, True, False, False]
    """
    return "://" in out


def working_folder(url: str) -> Path:
    """The folder of this machine for the runs of a URL."""
    return places.cache() / "sweeps" / hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]


class Mirror:
    """The copies of the runs of one sweep.

    Args:
        url: any URL that fsspec opens, such as ``s3://bucket/runs``.
        sweep: the name of the sweep.
    """

    def __init__(self, url: str, sweep: str) -> None:
        self.url = url
        with self._opening():
            self.files, root = fsspec.core.url_to_fs(url)
        self.root = PurePosixPath(root) / sweep
        self._copied: dict[str, dict[str, str]] = {}  # by run: the newest manifest of this process

    def probe(self) -> None:
        """Write a file and delete it, to notice at once a URL that cannot be written to."""
        path = self.root / f".probe-{uuid.uuid4().hex}"
        try:
            self._put(path, b"noisin")
            self.files.rm_file(str(path))
        except Exception as error:  # each file system has its own
            raise OutOfReach(
                f"sweep: {hidden(self.url)} cannot be written to: {self._said(error)}. Nothing was "
                f"started. Choose another --out, or create the bucket or folder."
            ) from error

    # The working copy

    def save(self, folder: Path, fence: int) -> None:
        """Copy what is new in the folder of a run."""
        now = _hashes(folder)
        before = self._copied.get(folder.name, {})
        if now == before or self._is_complete(folder.name):
            return
        place = self._working(folder.name) / f"{fence:06d}"
        with self._reaching():
            for name, digest in now.items():
                if digest not in before.values():
                    self._put(place / digest, read_regular(folder / name))
            self._put(place / MANIFEST, json.dumps({"files": now}).encode())
            for digest in set(before.values()) - set(now.values()):
                with suppress(FileNotFoundError):  # deleted before the URL was out of reach
                    self.files.rm_file(str(place / digest))
            for older in self._fences(folder.name):
                if older < fence:
                    self._remove(place.with_name(f"{older:06d}"))
        self._copied[folder.name] = now

    def restore(self, folder: Path, last: str | None = None) -> bool:
        """Replace a folder by the newest copy of its run, if it differs; whether there is one.

        Args:
            folder: the folder of the run.
            last: consider only copies that contain this file.
        """
        self._copied.pop(folder.name, None)
        for place, names in self._copies(folder.name):
            if last is None or last in names:
                if names != _hashes(folder):
                    self._fetch(folder, {name: place / names[name] for name in names})
                return True
        return False

    def _copies(self, name: str) -> Iterator[tuple[PurePosixPath, dict[str, str]]]:
        """The copies of a run, the newest first: the place, and the hash of each file."""
        for fence in sorted(self._fences(name), reverse=True):
            place = self._working(name) / f"{fence:06d}"
            manifest = self._get(place / MANIFEST)
            if manifest is not None:  # else its worker died before it had copied a checkpoint
                yield place, json.loads(manifest)["files"]

    def discard(self, name: str) -> None:
        """Remove the working copies of a run."""
        with self._reaching():
            if self._fences(name):
                self._remove(self._working(name))

    # Records

    def publish(self, folder: Path) -> None:
        """Copy the record of a run that has ended, and remove the working copies."""
        names = sorted(_hashes(folder), key=lambda name: (name in LAST, name))
        if not self._is_complete(folder.name):
            with self._reaching():
                for name in names:
                    self._put(self.root / folder.name / name, read_regular(folder / name))
        self.discard(folder.name)

    def published(self) -> dict[str, list[str]]:
        """The names of the files of all records, by the name of the run."""
        found: dict[str, list[str]] = {}
        with self._reaching():
            self.files.invalidate_cache()
            names = self.files.find(str(self.root)) if self.files.exists(str(self.root)) else []
        for name in names:
            run, *rest = PurePosixPath(name).relative_to(self._stripped(self.root)).parts
            if rest and run != WORKING:
                found.setdefault(run, []).append("/".join(rest))
        return {run: names for run, names in found.items() if set(names) & set(LAST)}

    def unpublished(self) -> list[str]:
        """The names of the runs that have a working copy."""
        return self._entries(self.root / WORKING)

    def fetch(self, folder: Path, names: list[str]) -> None:
        """Copy these files of a record to a folder."""
        self._fetch(folder, {name: self.root / folder.name / name for name in names})

    def _fetch(self, folder: Path, sources: dict[str, PurePosixPath]) -> None:
        """Replace a folder by these files, all of them or none."""
        new = folder.with_name(f".new-{folder.name}")
        with writing(folder):
            shutil.rmtree(new, ignore_errors=True)
            for name, source in sources.items():
                content = self._get(source)
                if content is None or (len(source.name) == 64 and sha256(content) != source.name):
                    raise Unavailable(f"sweep: {hidden(self.url)} has no valid copy of {source}.")
                (new / name).parent.mkdir(parents=True, exist_ok=True)
                write_synced(new / name, content)
            (new / "checkpoints").mkdir(exist_ok=True)
            if folder.exists():
                shutil.rmtree(folder)
            new.rename(folder)

    def _is_complete(self, name: str) -> bool:
        """Whether the record of this run at the URL is complete."""
        return SUMMARY in self._entries(self.root / name)

    def _working(self, name: str) -> PurePosixPath:
        return self.root / WORKING / name

    def _fences(self, name: str) -> list[int]:
        return [int(entry) for entry in self._entries(self._working(name)) if entry.isdecimal()]

    def _entries(self, place: PurePosixPath) -> list[str]:
        with self._reaching():
            self.files.invalidate_cache()
            known = self.files.exists(str(place))
            found = self.files.ls(str(place), detail=False) if known else []
        return [PurePosixPath(entry).name for entry in found]

    def _stripped(self, path: PurePosixPath) -> str:
        return str(self.files._strip_protocol(str(path)))

    def _put(self, path: PurePosixPath, content: bytes) -> None:
        protocol = self.files.protocol
        if not _OBJECTS & ({protocol} if isinstance(protocol, str) else set(protocol)):
            self.files.makedirs(str(path.parent), exist_ok=True)
        self.files.pipe_file(str(path), content)

    def _remove(self, folder: PurePosixPath) -> None:
        with suppress(FileNotFoundError):  # another worker does the same
            self.files.rm(str(folder), recursive=True)

    def _get(self, path: PurePosixPath) -> bytes | None:
        with self._reaching():
            try:
                return bytes(self.files.cat_file(str(path)))
            except FileNotFoundError:
                return None

    @contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            yield
        except ImportError as error:
            raise Unsupported(
                f"sweep: {hidden(self.url)} needs another package: {self._said(error)}. For s3:// "
                f"it is pip install 'noisin[s3]'."
            ) from error
        except (ValueError, TypeError) as error:
            raise Unsupported(
                f"sweep: {hidden(self.url)} cannot be used: {self._said(error)}."
            ) from error

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except NoisinError:
            raise
        except Exception as error:  # each file system has its own
            raise OutOfReach(
                f"sweep: {hidden(self.url)} cannot be used: {self._said(error)}. Everything is in "
                f"the folder of this machine: run the same command again.",
                isinstance(error, _FINAL),
            ) from error

    def _said(self, error: Exception) -> str:
        """The message of an error, without the secrets of the URL."""
        return without_secrets(error, self.url) or type(error).__name__


def _hashes(folder: Path) -> dict[str, str]:
    """The files of a run and the hashes of their content, without locks and partial files."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [path.relative_to(folder) for path in found]
    kept = [n for n in names if n.name != LOCK and not n.as_posix().startswith(_PARTIAL)]
    return {name.as_posix(): sha256(read_regular(folder / name)) for name in kept}


_PARTIAL = (".new-", "checkpoints/.new-", "checkpoints/.old-")
