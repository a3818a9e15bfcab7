"""The runs in a folder, read from their records: what tables, pictures and reports are made of.

>>> runs = collect("runs")                            # doctest: +SKIP
>>> [(run.name, run.best["best_valid"]) for run in runs if run.complete]    # doctest: +SKIP
[('compare-5c1d2ab0/no-noise', 78.1), ('compare-5c1d2ab0/noise', 71.9)]
>>> runs.damaged                                      # doctest: +SKIP
[Damaged(name='old', folder=PosixPath('runs/old'), reason='metrics.jsonl is damaged: ...')]
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from noisin import parameters
from noisin.errors import InvalidValue, NoisinError
from noisin.training.config import RunConfig
from noisin.training.course import Course
from noisin.training.record import RunRecord

End = Literal["diverged", "pruned", "failed"]
PERPLEXITIES = ("train", "train_clean", "valid", "valid_averaged")
NUMBERS = (*PERPLEXITIES, "lr", "noise_std", "seconds", "tokens_per_second")
UNREADABLE = (NoisinError, OSError, RecursionError)  # the last from JSON that is nested too deeply


@dataclass(frozen=True)
class Run:
    """What the record of a run says.

    Attributes:
        name: its folder, as seen from the folder that was searched.
        folder: its folder.
        config: its settings.
        environment: what it ran on and with.
        metrics: one dict per epoch, from the first on.
        summary: how it ended, or None while it is not complete.
        end: how it ended otherwise, as a sweep noted it, or None.
        message: what the sweep noted about that.
    """

    name: str
    folder: Path
    config: RunConfig
    environment: dict[str, Any]
    metrics: list[dict[str, Any]]
    summary: dict[str, Any] | None
    end: End | None = None
    message: str = ""

    @property
    def complete(self) -> bool:
        """Whether it has ended, and its best weights were measured on test."""
        return self.summary is not None

    @cached_property
    def best(self) -> dict[str, Any] | None:
        """The line of metrics at the epoch of the lowest validation perplexity, and more.

        ``weights`` are those that counted there, raw or averaged, ``best_valid`` is their
        perplexity on valid, and ``test`` theirs on test, or None if the run is not complete. A
        perplexity that is infinite is None too. Without an epoch there is no best one.
        """
        if not self.metrics:
            return None
        course = _course(self.config, self.metrics)
        line = self.metrics[max(course.best_epoch, 1) - 1]
        return line | {
            "weights": course.best_weights,
            "best_valid": course.best if math.isfinite(course.best) else None,
            "test": None if self.summary is None else self.summary["best"]["test"],
        }

    @cached_property
    def valid(self) -> list[float | None]:
        """Perplexity on valid by epoch, of the weights that counted: the raw, or their average."""
        history = _course(self.config, self.metrics).history
        return [value if math.isfinite(value) else None for value in history]

    @property
    def diverged(self) -> str | None:
        """Why it left the finite numbers, or None if it did not."""
        return self.message if self.end == "diverged" else None

    @property
    def unfinished(self) -> bool:
        """Whether the best epoch is the last one: it was still getting better."""
        return self.best is None or self.best["epoch"] == len(self.metrics)

    @property
    def text(self) -> str | None:
        """The sha256 of the text that it has read, if its record tells."""
        known = self.environment.get("data")
        found = known.get("sha256") if isinstance(known, Mapping) else None
        return found if isinstance(found, str) else None

    @cached_property
    def point(self) -> str:
        """Runs that share it are one point: see :func:`point`."""
        return point(self.config)


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


def comparable(config: RunConfig) -> RunConfig:
    """The settings that make a model and its training what they are.

    Without the seed, where and on how many threads it ran, and how much of the training text it was
    measured on. The spread of the noise is a gamma, however it was given.
    """
    plain = RunConfig()
    train = config.train.model_copy(update={"clean_tokens": plain.train.clean_tokens})
    update: dict[str, Any] = {"seed": plain.seed, "threads": None, "device": plain.device}
    update["train"] = train
    if (noise := config.noise) is not None:
        exact = noise.gamma if noise.std is None else parameters.gamma(noise.law, noise.std)
        rounded = float(f"{exact:.9g}")  # as it is where one digit or two were meant
        update["noise"] = noise.model_copy(update={"gamma": rounded, "std": None})
    return config.model_copy(update=update)


def point(config: RunConfig) -> str:
    """A hash of the comparable settings but for the limits."""
    return comparable(config).hash(limits=False)


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
        _check_summary(folder, summary, metrics, config)
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


def _check_summary(
    folder: Path, summary: Mapping[str, Any], metrics: list[dict[str, Any]], config: RunConfig
) -> None:
    place = f"{folder / 'summary.json'} is damaged"
    best = summary.get("best")
    if not isinstance(best, Mapping) or "test" not in best:
        raise InvalidValue(f"{place}: it must tell of the best epoch, got {best!r:.60}.")
    _number(place, "test", best["test"])
    epoch = max(_course(config, metrics).best_epoch, 1)
    if best.get("epoch") != epoch or not metrics:
        raise InvalidValue(
            f"{place}: its best epoch is {best.get('epoch')!r:.20}, and that of metrics.jsonl, "
            f"which has {len(metrics)} epochs, is {epoch}. Put both files back, or run it again."
        )


def _course(config: RunConfig, metrics: list[dict[str, Any]]) -> Course:
    """What validation decided, decided again: the trainer's own rule tells the best epoch."""
    course = Course.start(config.train)
    for line in metrics:
        raw, averaged = line["valid"], line["valid_averaged"]
        if averaged is None and course.averaging:
            averaged = math.inf
        course.judge(config.train, math.inf if raw is None else raw, averaged)
    return course


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
