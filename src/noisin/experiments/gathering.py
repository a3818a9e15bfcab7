"""Gather the finished records of several folders or URLs into one folder.

Machines that share no folder each have the records of their own runs. A run is finished if it is
complete or has diverged, which is a result as well. A record is identified by the hash of its
settings; two records of the same settings must agree in everything but times.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fsspec

from noisin._util.files import sync_folder, writing
from noisin.errors import InvalidValue, Unavailable
from noisin.experiments.collection import Collection, collect
from noisin.experiments.fingerprint import fingerprint
from noisin.experiments.records import Run
from noisin.experiments.sweep.address import hidden, without_secrets
from noisin.training.record import RunRecord

_LEFT_BEHIND = (".lock", ".new-*", ".old-*")


@dataclass(frozen=True)
class Gathered:
    """What was done: records copied, records that were there already, and runs left behind."""

    copied: int
    known: int
    unfinished: int


def gather(
    sources: Sequence[str],
    out: str | Path,
    checkpoints: bool = True,
    note: Callable[[str], None] = lambda _: None,
) -> Gathered:
    """Copy the finished records of all sources to ``out``, each once. Nothing is overwritten.

    Args:
        sources: folders, or URLs as fsspec opens them.
        out: the folder to copy to; a record keeps its path below its source.
        checkpoints: whether to copy the checkpoints too.
        note: called with the progress.

    Raises:
        InvalidValue: ``out`` is a file or inside a source, a record is damaged, two of the same
            settings differ, or two of different settings have the same path. Nothing was copied.
    """
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise InvalidValue(f"collect: {out} is not a folder. Choose another one for --out.")
    _refuse_inside(out, sources)
    with _local(sources) as roots:
        found = [(root, run) for root in roots for run in _sound(collect(root, note=note))]
        finished = [(root, run) for root, run in found if _is_finished(run)]
        there = _fingerprints(_sound(collect(out))) if out.is_dir() else {}
        known = dict(there)
        new: dict[str, tuple[Path, Run]] = {}
        for root, run in finished:
            digest, mine = run.config.hash(), fingerprint(RunRecord(run.folder))
            before = known.setdefault(digest, (run.folder, mine))
            if before[1] != mine:
                raise InvalidValue(
                    f"collect: {run.folder} and {before[0]} are records of the same settings and "
                    f"differ in their results. Nothing was copied: move one of them away."
                )
            if digest not in there:
                new.setdefault(digest, (root, run))
        targets = [(out / _path(root, run), run) for root, run in new.values()]
        _refuse_equal_paths(targets)
        _refuse_taken(targets)
        for target, run in targets:
            note(f"{target.relative_to(out)}")
            _copy(run.folder, target, checkpoints)
        return Gathered(len(new), len(finished) - len(new), len(found) - len(finished))


def _refuse_inside(out: Path, sources: Sequence[str]) -> None:
    """Refuse to copy records into the folder that they come from, where they would be found again.

    The folder itself is no problem: what is in it is there already.
    """
    places = [source.removeprefix("file://") for source in sources]
    for place in (place for place in places if "://" not in place):
        if Path(place).resolve() in out.resolve().parents:
            raise InvalidValue(
                f"collect: {out} is inside {place}, from which records are to be copied. Choose a "
                f"folder outside of it, or --out {place} to add the records of other sources."
            )


def _is_finished(run: Run) -> bool:
    return run.complete or run.diverged is not None


def _sound(runs: Collection) -> Collection:
    """Refuse damaged records: an end that cannot be read must not look like one that is missing."""
    if runs.damaged:
        first = runs.damaged[0]
        raise InvalidValue(f"collect: {first.folder} cannot be used: {first.reason}")
    return runs


def _fingerprints(runs: Collection) -> dict[str, tuple[Path, str]]:
    return {
        run.config.hash(): (run.folder, fingerprint(RunRecord(run.folder)))
        for run in runs
        if _is_finished(run)
    }


def _path(root: Path, run: Run) -> Path:
    """The path of a run below its source; its name, if it is the source itself."""
    path = run.folder.resolve().relative_to(root.resolve())
    return Path(run.folder.resolve().name) if path == Path() else path


def _refuse_equal_paths(targets: Sequence[tuple[Path, Run]]) -> None:
    """Refuse two records that have the same path below their sources."""
    first: dict[Path, Run] = {}
    for target, run in targets:
        other = first.setdefault(target, run)
        if other is not run:
            raise InvalidValue(
                f"collect: {other.folder} and {run.folder} are records of different settings, and "
                f"both would be copied to {target}. Nothing was copied: rename one of them, or "
                f"copy them to two folders."
            )


def _refuse_taken(targets: Sequence[tuple[Path, Run]]) -> None:
    for target, run in targets:
        if target.exists():
            raise InvalidValue(
                f"collect: {target} exists and is not the record {run.folder}. Nothing was "
                f"copied: choose another folder, or move it away."
            )


def _copy(source: Path, target: Path, checkpoints: bool) -> None:
    """Copy a record under another name, and rename it: it is there completely or not at all."""
    left = _LEFT_BEHIND if checkpoints else (*_LEFT_BEHIND, "checkpoints")
    new = target.with_name(f".new-{target.name}")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(source, new, ignore=shutil.ignore_patterns(*left))
        for folder in [new, *(path for path in new.rglob("*") if path.is_dir())]:
            for file in filter(Path.is_file, folder.iterdir()):
                with file.open("rb") as written:
                    os.fsync(written.fileno())
            sync_folder(folder)
        new.rename(target)
        sync_folder(target.parent)


@contextmanager
def _local(sources: Sequence[str]) -> Iterator[list[Path]]:
    """The sources as folders of this machine; those of URLs are deleted in the end."""
    with tempfile.TemporaryDirectory(prefix="noisin-collect-") as scratch:
        yield [
            _downloaded(source, Path(scratch) / str(n)) if "://" in source else Path(source)
            for n, source in enumerate(sources)
        ]


def _downloaded(url: str, folder: Path) -> Path:
    try:
        files, root = fsspec.core.url_to_fs(url)
        if not files.exists(root):
            raise FileNotFoundError("there is nothing")
        for name in files.find(root):
            path = Path(os.path.relpath(name, root))
            if ".working" not in path.parts:  # of runs that have not ended
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(files.cat_file(name))
    except Exception as error:  # each file system has its own
        said = without_secrets(error, url) or type(error).__name__
        raise Unavailable(f"collect: {hidden(url)} cannot be read: {said}.") from error
    folder.mkdir(exist_ok=True)
    return folder
