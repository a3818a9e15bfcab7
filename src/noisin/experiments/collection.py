"""The runs in a folder, read from their records: the data of tables, pictures and reports.

>>> runs = collect("runs")                            # doctest: +SKIP
>>> [(run.name, run.best["best_valid"]) for run in runs if run.complete]    # doctest: +SKIP
[('compare-5c1d2ab0/no-noise', 78.1), ('compare-5c1d2ab0/noise', 71.9)]
>>> runs.damaged                                      # doctest: +SKIP
[DamagedRecord(name='old', folder=PosixPath('runs/old'), reason='metrics.jsonl is damaged: ...')]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from noisin.errors import InvalidValue, NoisinError
from noisin.experiments.records import Run, read_run
from noisin.experiments.searching import FolderSearch


@dataclass(frozen=True)
class DamagedRecord:
    """A record that cannot be used, and why."""

    name: str
    folder: Path
    reason: str


class Collection(list[Run]):
    """Runs sorted by name, and the records that cannot be used."""

    def __init__(self, runs: Iterable[Run] = (), damaged: Iterable[DamagedRecord] = ()) -> None:
        super().__init__(runs)
        self.damaged = list(damaged)


def collect(*folders: str | Path, note: Callable[[str], None] = lambda _: None) -> Collection:
    """All runs in these folders, at any depth, each once. Unusable records are listed too.

    Args:
        folders: where to search; a folder that contains far more than runs is refused.
        note: called with the progress of a long search.
    """
    roots = [Path(folder) for folder in folders]
    for root in roots:
        if not root.is_dir():
            found = "is not a folder" if root.exists() else "does not exist"
            raise InvalidValue(f"{root} {found}. Name a folder with runs of noisin train.")
    base = Path(os.path.commonpath([root.resolve() for root in roots])) if roots else Path()
    collection, search = Collection(), FolderSearch(note)
    for root in roots:
        for folder, problem in search.below(root):
            name = _name(folder, base)
            try:
                if problem is not None:
                    raise InvalidValue(problem)
                collection.append(read_run(folder, name))
            except (NoisinError, OSError) as error:
                collection.damaged.append(DamagedRecord(name, folder, str(error)))
    collection.sort(key=lambda run: run.name)
    collection.damaged.sort(key=lambda record: record.name)
    return collection


def _name(folder: Path, base: Path) -> str:
    try:
        name = str(folder.resolve().relative_to(base))
    except ValueError:  # behind a link to another place
        name = folder.name
    return base.name if name == "." else name
