"""Runs that differ in the seed alone are one point; points of one text and one model are one task.

The device and the number of threads do not matter. Points of a task are compared with each other at
the epoch of the lowest score on valid, as mean ± sample standard deviation over the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from noisin.experiments import words
from noisin.experiments.records import Run
from noisin.experiments.seeds import Mean, longest_of_each_seed
from noisin.tasks.unit import Unit
from noisin.training.config import RunConfig
from noisin.training.schedule import WEIGHTS, Weights


@dataclass(frozen=True)
class PointGroup:
    """The runs of one point.

    Attributes:
        label: what distinguishes it from the other points of its task.
        runs: one for each seed: the one with the most epochs, if there are several.
        others: runs of the same seeds with fewer epochs, which do not count.
    """

    label: str
    runs: Sequence[Run]
    others: Sequence[Run] = ()

    @property
    def config(self) -> RunConfig:
        """The settings; the seed and the limits are those of the first run."""
        return self.runs[0].config

    @property
    def unit(self) -> Unit:
        """The unit of its scores."""
        return self.runs[0].unit

    @property
    def all_runs(self) -> list[Run]:
        """Those that count, and the others."""
        return [*self.runs, *self.others]

    @cached_property
    def counted(self) -> list[Run]:
        """The runs that the scores are of: the complete ones, or if there are none all others."""
        complete = [run for run in self.runs if run.complete]
        return complete or [run for run in self.runs if run.best is not None]

    @property
    def complete(self) -> bool:
        """Whether there are scores to compare with those of other points."""
        return any(run.complete for run in self.runs)

    @property
    def gamma(self) -> float | None:
        """The paper's parameter of the noise, when it is there in full."""
        noise = self.config.noise
        return None if noise is None else noise.known_gamma

    @property
    def std(self) -> float | None:
        """The standard deviation of the noise, when it is there in full."""
        noise = self.config.noise
        return None if noise is None else noise.known_std

    @property
    def dropout_std(self) -> float | None:
        """The standard deviation of dropout as noise of mean one: see :func:`words.dropout_std`."""
        return words.dropout_std(self.config)

    @property
    def train(self) -> Mean | None:
        """The score on train at the best epoch, noise and dropout off."""
        return self._at_best("train_clean")

    @property
    def valid(self) -> Mean | None:
        """The lowest score on valid, of the better of the raw and the averaged weights."""
        return self._at_best("best_valid")

    def valid_of(self, weights: Weights) -> Mean | None:
        """The lowest score on valid of the raw weights, or of their average."""
        bests = [run.at_best(weights) for run in self.counted]
        return _mean(None if best is None else best["best_valid"] for best in bests)

    @property
    def weights(self) -> str:
        """Which weights are better on valid: ``raw`` or ``averaged``, or both over seeds."""
        bests = {run.best["weights"] for run in self.counted if run.best is not None}
        return " or ".join(weights for weights in WEIGHTS if weights in bests)

    @property
    def test(self) -> Mean | None:
        """The score on test of the weights of the best epoch."""
        return self._at_best("test")

    @property
    def gap(self) -> Mean | None:
        """``valid - train`` at the best epoch: how much better it predicts the training data."""
        bests = [run.best for run in self.counted if run.best is not None]
        if any(best["train_clean"] is None for best in bests):
            return None
        return _mean(best["best_valid"] - best["train_clean"] for best in bests)

    @property
    def best_epochs(self) -> str:
        """The best epoch and the number of epochs: ``7 of 14``, or ``6-9 of 14`` over seeds."""
        bests = [run.best["epoch"] for run in self.counted if run.best is not None]
        if not bests:
            return ""
        return f"{_range(bests)} of {_range([len(run.metrics) for run in self.counted])}"

    def _at_best(self, name: str) -> Mean | None:
        return _mean(run.best[name] for run in self.counted if run.best is not None)


@dataclass(frozen=True)
class TaskGroup:
    """The points of one text and one model, the lowest score on valid first."""

    title: str
    points: Sequence[PointGroup]

    @property
    def runs(self) -> list[Run]:
        """All runs of the task."""
        return [run for point in self.points for run in point.all_runs]

    @property
    def unit(self) -> Unit:
        """The unit of its scores."""
        return self.points[0].unit


def tasks(runs: Iterable[Run]) -> list[TaskGroup]:
    """Runs sorted into tasks and points. The title has what distinguishes two tasks of one name:
    the hash of the text, and the unit.
    """

    def key(run: Run) -> tuple[str, str, str]:
        return words.task(run.config), run.text or "unknown", str(run.unit)

    groups = sorted(grouped(runs, key).items())
    keys = [name for name, _ in groups]
    return [TaskGroup(_title(name, keys), _points(some)) for name, some in groups]


def _title(key: tuple[str, str, str], keys: Sequence[tuple[str, str, str]]) -> str:
    title, text, unit = key
    alike = [other for other in keys if other[0] == title]
    parts = [f"data {text[:8]}"] if len({other[1] for other in alike}) > 1 else []
    parts += [unit] if len({other[2] for other in alike}) > 1 else []
    return f"{title} ({', '.join(parts)})" if parts else title


def _points(runs: Sequence[Run]) -> list[PointGroup]:
    groups = list(grouped(runs, lambda run: run.point).values())
    names = words.points([some[0].config for some in groups])
    points = [
        PointGroup(name, *one_per_seed(some)) for name, some in zip(names, groups, strict=True)
    ]
    return sorted(points, key=_order)


def one_per_seed(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """The run of each seed that was trained longest, and the others."""
    chosen = sorted(longest_of_each_seed(runs), key=lambda run: run.config.seed)
    return chosen, [run for run in runs if run not in chosen]


def _order(point: PointGroup) -> tuple[Any, ...]:
    valid = point.valid
    return not point.complete, math.inf if valid is None else valid.mean, point.label


def _range(values: Sequence[int]) -> str:
    return str(min(values)) if min(values) == max(values) else f"{min(values)}-{max(values)}"


def _mean(values: Iterable[float | None]) -> Mean | None:
    """None if one of the values is missing or infinite, or if their sum overflows."""
    known = list(values)
    numbers = [value for value in known if value is not None]
    if not numbers or len(numbers) < len(known):
        return None
    mean = Mean.of(numbers)
    return mean if math.isfinite(mean.mean) else None


def grouped(runs: Iterable[Run], key: Callable[[Run], Any]) -> dict[Any, list[Run]]:
    """Runs by a key, in the order of the first run of each key."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups
