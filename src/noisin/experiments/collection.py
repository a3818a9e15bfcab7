"""The runs in a folder, read from their records: what tables, pictures and reports are made of.

>>> runs = collect("runs")                            # doctest: +SKIP
>>> [(run.name, run.best["best_valid"]) for run in runs if run.complete]    # doctest: +SKIP
[('compare-5c1d2ab0/no-noise', 78.1), ('compare-5c1d2ab0/noise', 71.9)]
>>> runs.damaged                                      # doctest: +SKIP
[DamagedRecord(name='old', folder=PosixPath('runs/old'), reason='metrics.jsonl is damaged: ...')]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from noisin.errors import InvalidValue, NoisinError
from noisin.experiments.records import End, Run
from noisin.experiments.searching import FolderSearch
from noisin.training import schemas
from noisin.training.config import RunConfig
from noisin.training.reading import read_object
from noisin.training.record import RunRecord

PERPLEXITIES = ("train", "train_clean", "valid", "valid_averaged")
NUMBERS = (*PERPLEXITIES, "lr", "noise_std", "seconds", "tokens_per_second")


@dataclass(frozen=True)
class DamagedRecord:
    """A record that cannot be used, and why."""

    name: str
    folder: Path
    reason: str


class Collection(list[Run]):
    """Runs, in the order of their names, and beside them the records that cannot be used."""

    def __init__(self, runs: Iterable[Run] = (), damaged: Iterable[DamagedRecord] = ()) -> None:
        super().__init__(runs)
        self.damaged = list(damaged)


def collect(*folders: str | Path, note: Callable[[str], None] = lambda _: None) -> Collection:
    """All runs in these folders, however deep. Each counts once; none is passed over in silence.

    Args:
        folders: where to search; one that holds far more than runs is refused.
        note: told how far a long search is.
    """
    roots = [Path(folder) for folder in folders]
    for root in roots:
        if not root.is_dir():
            found = "is no folder" if root.exists() else "is not there"
            raise InvalidValue(f"{root} {found}. Name a folder with runs that noisin train made.")
    base = Path(os.path.commonpath([root.resolve() for root in roots])) if roots else Path()
    collection, search = Collection(), FolderSearch(note)
    for root in roots:
        for folder, problem in search.below(root):
            name = _name(folder, base)
            try:
                if problem is not None:
                    raise InvalidValue(problem)
                collection.append(_read(name, folder))
            except (NoisinError, OSError) as error:
                collection.damaged.append(DamagedRecord(name, folder, str(error)))
    collection.sort(key=lambda run: run.name)
    collection.damaged.sort(key=lambda record: record.name)
    return collection


def _name(folder: Path, base: Path) -> str:
    try:
        name = str(folder.resolve().relative_to(base))
    except ValueError:  # behind a link that leads elsewhere
        name = folder.name
    return base.name if name == "." else name


def _read(name: str, folder: Path) -> Run:
    """A run whose record makes sense. The summary is read first: it is written last."""
    record = RunRecord(folder)
    summary, config = record.summary, record.config
    metrics = [line | {name: _float(line.get(name)) for name in NUMBERS} for line in record.metrics]
    if summary is not None:
        _check_summary(folder, summary, metrics)
    end = (None, "") if summary is not None else _end(folder, config)
    return Run(name, folder, config, record.environment, metrics, summary, *end)


def _float(value: float | None) -> float | None:
    """JSON may have a whole number there."""
    return None if value is None else float(value)


def _check_summary(folder: Path, summary: Mapping[str, Any], metrics: list[dict[str, Any]]) -> None:
    """The best epoch of the weights that count, and of both kinds since noisin 0.2."""
    place = f"{folder / 'summary.json'} is damaged"
    for name in ("best", "raw", "averaged"):
        best = summary.get(name)
        if best is not None:
            _check_epoch(place, best, metrics)


def _check_epoch(place: str, best: Mapping[str, Any], metrics: list[dict[str, Any]]) -> None:
    epoch = best["epoch"]
    lines = [line for line in metrics if line["epoch"] == epoch]
    if not lines or any(lines[0][name] != best[name] for name in ("valid", "valid_averaged")):
        raise InvalidValue(
            f"{place}: its best epoch, {epoch}, is not one of the {len(metrics)} in "
            f"metrics.jsonl. Put both files back, or run it again."
        )


def _end(folder: Path, config: RunConfig) -> tuple[End | None, str]:
    """What a sweep noted in ``diverged.json`` and the like, unless the settings were others."""
    for end in get_args(End):
        path = folder / f"{end}.json"
        try:
            note = read_object(path, schemas.EndNote)
        except InvalidValue as error:
            raise InvalidValue(f"{error} Or delete {path.name} to continue the run.") from None
        if note is not None and note["config"] == config.hash():
            return end, str(note["message"])
    return None, ""
