"""Your own series: files of arrays, and which of their columns are what."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from noisin.data import arrays, hourly
from noisin.data.arrays import Frame
from noisin.data.corpus import SPLITS
from noisin.data.datasets import splits_named
from noisin.data.series import REAL, SeriesSet, SeriesTable, check_values
from noisin.errors import InvalidData, InvalidValue, Unavailable


@dataclass(frozen=True)
class Columns:
    """What the columns of a table are.

    Attributes:
        targets: the columns to predict.
        likelihood: of the targets.
        covariates: columns that are known in advance of each step.
        sequence: a column that names the sequence of each row; by default a table is one sequence.
        split: a column with train, valid or test in each row.
        valid, test: if files and columns do not say it, the shares of these splits: the end of a
            single sequence, or the last of several.
        context: rows before a split that are read, but not scored.
        season: the period of the seasonal-naive forecast, in steps.
        changes: whether to predict the change from the step before, of real values.
    """

    targets: tuple[str, ...]
    likelihood: str
    covariates: tuple[str, ...] = ()
    sequence: str | None = None
    split: str | None = None
    valid: float = 0.1
    test: float = 0.1
    context: int = 0
    season: int | None = None
    changes: bool = False


def load(
    name: str, folder: str | os.PathLike[str] | None = None, columns: Columns | None = None
) -> SeriesSet:
    """A series by name, or your own: the path of a file or folder of arrays, with its columns.

    The files of a folder are sequences, in the order of their names. Files or folders that are
    called train, valid and test are those splits.
    """
    if name in hourly.FILES:
        return hourly.load(name, folder)
    if columns is None:
        raise InvalidValue(
            f"series: expected {' or '.join(hourly.FILES)}, or the path of your own data together "
            f"with its columns, got {name!r:.60}. Name them: [data.columns] targets = [...]."
        )
    _check(columns)
    path = Path(name)
    given = list(_files(path))
    hashes, frames = hashlib.sha256(), list[tuple[str | None, Frame]]()
    for file in given:
        found, sha256 = arrays.read(file)
        hashes.update(f"{file.relative_to(path).as_posix()} {sha256}\n".encode())
        named = splits_named(file.relative_to(path).as_posix()) if path.is_dir() else []
        frames += [(named[0] if named else None, frame) for frame in found]
    splits = _split(path, frames, columns)
    for tables in splits.values():
        for table in tables:
            if len(table) < 2:
                raise InvalidData(
                    f"{table.name}: has one step, expected two or more: each is predicted from "
                    f"those before it. Leave the sequence out, or join it to another."
                )
    return SeriesSet(
        path.stem,
        columns.targets,
        columns.covariates,
        columns.likelihood,
        **splits,
        seasons=() if columns.season is None else (columns.season,),
        sha256=hashes.hexdigest(),
        source=str(path),
        changes=columns.changes,
    )


def _check(columns: Columns) -> None:
    """Raise where two settings contradict each other."""
    if twice := [name for name in columns.targets if columns.targets.count(name) > 1]:
        raise InvalidValue(f"series: the target {twice[0]!r:.60} is named twice. Name it once.")
    if columns.changes and columns.likelihood not in REAL:
        raise InvalidValue(
            f"series: changes are of real values ({', '.join(REAL)}), got the likelihood "
            f"{columns.likelihood}. Leave changes out."
        )


def _files(path: Path) -> Iterator[Path]:
    """The files of arrays at a path, in order."""
    if path.is_file():
        if path.suffix.lower() not in arrays.READERS:
            raise InvalidData(
                f"{path}: expected a file of arrays ({', '.join(arrays.READERS)}) or a folder."
            )
        yield path
        return
    if not path.is_dir():
        raise Unavailable(f"{path}: there is no such file or folder.")
    found = sorted(file for file in path.rglob("*") if file.suffix.lower() in arrays.READERS)
    if not found:
        raise Unavailable(f"{path}: has no files of arrays ({', '.join(arrays.READERS)}).")
    yield from found


def _split(
    path: Path, frames: Iterable[tuple[str | None, Frame]], columns: Columns
) -> dict[str, list[SeriesTable]]:
    """The sequences of each split: by file, by column or by share."""
    found: dict[str, list[SeriesTable]] = {split: [] for split in SPLITS}
    rest: list[tuple[SeriesTable, list[str] | None]] = []
    for split, frame in frames:
        for table, labels in _sequences(frame, columns):
            if split is None:
                rest.append((table, labels))
            else:
                found[split].append(table)
    if rest and any(found.values()):
        raise InvalidData(
            f"{path}: {rest[0][0].name} is in none of train, valid and test, and other files are. "
            f"Name all files after splits, or none."
        )
    if columns.context and not columns.split and (len(rest) != 1 or any(found.values())):
        raise InvalidValue(
            f"{path}: context is of rows before a split of the same sequence, and here the splits "
            f"are sequences of their own. Leave data.columns.context out."
        )
    for split, table in _labelled(rest, columns) if columns.split else _shared(rest, columns):
        found[split].append(table)
    if missing := [split for split in SPLITS if not found[split]]:
        raise InvalidData(
            f"{path}: has no {missing[0]} data. Expected files called train, valid and test, a "
            f"column that says it (data.columns.split), or three or more sequences."
        )
    return found


def _sequences(frame: Frame, columns: Columns) -> Iterator[tuple[SeriesTable, list[str] | None]]:
    """The sequences of a frame, with the split of each row if a column says it."""
    target, covariates = frame.numbers(columns.targets), frame.numbers(columns.covariates)
    whole = SeriesTable(frame.name, target, covariates, np.ones(len(frame), bool))
    check_values(whole, columns.targets, columns.likelihood)  # while rows are those of the file
    labels = frame.labels(columns.split) if columns.split else None
    names = np.array(frame.labels(columns.sequence) if columns.sequence else [""] * len(frame))
    _, first = np.unique(names, return_index=True)
    for name in names[np.sort(first)]:
        rows = np.flatnonzero(names == name)
        called = f"{frame.name}: {columns.sequence} {name}" if columns.sequence else frame.name
        table = SeriesTable(called, target[rows], covariates[rows], np.ones(len(rows), bool), rows)
        yield table, None if labels is None else [labels[row] for row in rows]


def _labelled(
    sequences: Iterable[tuple[SeriesTable, list[str] | None]], columns: Columns
) -> Iterator[tuple[str, SeriesTable]]:
    """The stretches of each sequence that a column assigns to a split."""
    for table, labels in sequences:
        assert labels is not None
        bounds = [0, *(i for i in range(1, len(labels)) if labels[i] != labels[i - 1]), len(labels)]
        for start, stop in pairwise(bounds):
            if labels[start] not in SPLITS:
                raise InvalidData(
                    f"{table.name}: the column of splits has {labels[start]!r:.40} in row "
                    f"{start + 1}, expected train, valid or test."
                )
            yield labels[start], table.rows(start, stop, _context(labels[start], columns))


def _shared(
    sequences: list[tuple[SeriesTable, list[str] | None]], columns: Columns
) -> Iterator[tuple[str, SeriesTable]]:
    """The splits by their shares of a single sequence, or of the number of sequences."""
    tables = [table for table, _ in sequences]
    alone = len(tables) == 1
    total = len(tables[0]) if alone else len(tables)
    test, valid = (max(1, round(share * total)) for share in (columns.test, columns.valid))
    bounds = [0, total - valid - test, total - test, total]
    if bounds[1] < 1:
        return
    for split, (start, stop) in zip(SPLITS, pairwise(bounds), strict=True):
        if not alone:
            yield from ((split, table) for table in tables[start:stop])
            continue
        table = tables[0].rows(start, stop, _context(split, columns))
        if split != "train" and len(table) < 2:
            raise InvalidData(
                f"{table.name}: its share {getattr(columns, split):g} of {total} rows for {split} "
                f"is one row, and expected are two or more: each is predicted from those before "
                f"it. Use a larger data.columns.{split}, or rows of data.columns.context before it."
            )
        yield split, table


def _context(split: str, columns: Columns) -> int:
    """How many rows before a split are read: before train there are none."""
    return 0 if split == "train" else columns.context
