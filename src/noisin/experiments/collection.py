"""The runs in a folder, read from their records: what tables, pictures and reports are made of.

>>> runs = collect("runs")                            # doctest: +SKIP
>>> [(run.name, run.best["best_valid"]) for run in runs if run.complete]    # doctest: +SKIP
[('compare-5c1d2ab0/no-noise', 78.1), ('compare-5c1d2ab0/noise', 71.9)]
>>> runs.damaged                                      # doctest: +SKIP
[Damaged(name='old', folder=PosixPath('runs/old'), reason='metrics.jsonl is damaged: ...')]
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from noisin.errors import InvalidValue, NoisinError
from noisin.experiments.run import End, Run
from noisin.training.config import RunConfig
from noisin.training.course import WEIGHTS
from noisin.training.record import RunRecord

PERPLEXITIES = ("train", "train_clean", "valid", "valid_averaged")
NUMBERS = (*PERPLEXITIES, "lr", "noise_std", "seconds", "tokens_per_second")
UNREADABLE = (NoisinError, OSError, RecursionError)  # the last from JSON that is nested too deeply


@dataclass(frozen=True)
class Damaged:
    """A record that cannot be used, and why."""

    name: str
    folder: Path
    reason: str


class Collection(list[Run]):
    """Runs, in the order of their names, and beside them the records that cannot be used."""

    def __init__(self, runs: Iterable[Run] = (), damaged: Iterable[Damaged] = ()) -> None:
        super().__init__(runs)
        self.damaged = list(damaged)


def collect(*folders: str | Path) -> Collection:
    """All runs in these folders, however deep. Each counts once; none is passed over in silence."""
    roots = [Path(folder) for folder in folders]
    for root in roots:
        if not root.is_dir():
            found = "is no folder" if root.exists() else "is not there"
            raise InvalidValue(f"{root} {found}. Name a folder with runs that noisin train made.")
    base = Path(os.path.commonpath([root.resolve() for root in roots])) if roots else Path()
    collection, seen = Collection(), set[Path]()
    for root in roots:
        for folder, problem in _search(root, seen):
            name = _name(folder, base)
            try:
                if problem is not None:
                    raise InvalidValue(problem)
                collection.append(_read(name, folder))
            except UNREADABLE as error:
                collection.damaged.append(Damaged(name, folder, str(error)))
    collection.sort(key=lambda run: run.name)
    collection.damaged.sort(key=lambda record: record.name)
    return collection


def _search(folder: Path, seen: set[Path]) -> Iterator[tuple[Path, str | None]]:
    """Folders of runs, each with what is wrong with it as a folder. Links may go in circles."""
    if folder.resolve() in seen:
        return
    seen.add(folder.resolve())
    try:
        inside = sorted(folder.iterdir())
        below = [path for path in inside if path.is_dir()]
    except OSError as error:
        yield folder, f"{folder} cannot be read: {error.strerror}."
        return
    names = {path.name for path in inside}
    if "config.json" in names:
        yield folder, None
        below = [path for path in below if path.name != "checkpoints"]
    elif "metrics.jsonl" in names:
        yield folder, f"{folder} has metrics.jsonl and no config.json. Put that back."
    for path in below:
        yield from _search(path, seen)


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
    metrics = [_line(folder, i, line) for i, line in enumerate(record.metrics)]
    if summary is not None:
        _check_summary(folder, summary, metrics)
    end = (None, "") if summary is not None else _end(folder, config)
    return Run(name, folder, config, record.environment, metrics, summary, *end)


def _line(folder: Path, i: int, line: object) -> dict[str, Any]:
    place = f"{folder / 'metrics.jsonl'} is damaged: line {i + 1}"
    if not isinstance(line, Mapping) or line.get("epoch") != i + 1:
        raise InvalidValue(f"{place} must be that of epoch {i + 1}, got {line!r:.60}.")
    return dict(line) | {name: _number(place, name, line.get(name)) for name in NUMBERS}


def _number(place: str, name: str, value: object) -> float | None:
    if value is None:
        return None
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if known and 0 <= value <= sys.float_info.max:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    raise InvalidValue(f"{place}: {name} must be 0 or more, or null, got {value!r:.60}.")


def _check_summary(folder: Path, summary: Mapping[str, Any], metrics: list[dict[str, Any]]) -> None:
    """The best epoch of the weights that count, and of both kinds since noisin 0.2."""
    place = f"{folder / 'summary.json'} is damaged"
    for name in ("best", "raw", "averaged"):
        best = summary.get(name)
        if best is None and name != "best":
            continue
        if not isinstance(best, Mapping) or "test" not in best:
            raise InvalidValue(f"{place}: it must tell of the best epoch, got {best!r:.60}.")
        if best.get("weights") not in WEIGHTS:
            raise InvalidValue(f"{place}: it must tell whose weights {name} are, got {best!r:.60}.")
        for number in ("test", "train_clean"):
            _number(place, number, best.get(number))
        _check_epoch(place, best, metrics)


def _check_epoch(place: str, best: Mapping[str, Any], metrics: list[dict[str, Any]]) -> None:
    epoch = best.get("epoch")
    lines = [line for line in metrics if line["epoch"] == epoch]
    if not lines or any(lines[0][name] != best.get(name) for name in ("valid", "valid_averaged")):
        raise InvalidValue(
            f"{place}: its best epoch, {epoch!r:.20}, is not one of the {len(metrics)} in "
            f"metrics.jsonl. Put both files back, or run it again."
        )


def _end(folder: Path, config: RunConfig) -> tuple[End | None, str]:
    """What a sweep noted in ``diverged.json`` and the like, unless the settings were others."""
    for end in get_args(End):
        path = folder / f"{end}.json"
        try:
            note = json.loads(path.read_bytes())
            if note["config"] == config.hash():
                return end, str(note["message"])
        except FileNotFoundError:
            continue
        except (ValueError, TypeError, LookupError):
            raise InvalidValue(f"{path} is damaged. Delete it to let the run go on.") from None
    return None, ""
