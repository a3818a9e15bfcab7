"""Runs that differ in seed alone are one point; points of one text and one model are one task.

Points of a task are compared with each other: at the epoch of the lowest validation perplexity, as
mean ± sample standard deviation over the seeds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from noisin import parameters
from noisin.experiments import labels
from noisin.experiments.collection import Run
from noisin.training.config import RunConfig


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds.

    >>> print(estimate([76.0, 77.0, 78.0]))
    77.0 ± 1.0
    >>> print(estimate([76.04]), estimate([76.0, None]))
    76.0 None
    """

    mean: float
    spread: float | None
    n: int

    def __str__(self) -> str:
        spread = "" if self.spread is None else f" ± {self.spread:.1f}"
        return f"{number(self.mean)}{spread}"


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """The mean and its spread, or None where one of the values is missing or infinite."""
    known = list(values)
    if not known or None in known:
        return None
    numbers = [value for value in known if value is not None]
    spread = statistics.stdev(numbers) if len(numbers) > 1 else None
    return Estimate(statistics.fmean(numbers), spread, len(numbers))


def number(perplexity: float) -> str:
    """A perplexity in a few digits.

    >>> number(82.123), number(12345.6)
    ('82.1', '1.23e+04')
    """
    return f"{perplexity:.1f}" if perplexity < 10_000 else f"{perplexity:.3g}"


@dataclass(frozen=True)
class Point:
    """The runs of one point.

    Attributes:
        label: what sets it apart from the other points of its task.
        runs: one per seed: that with the most epochs, if there are several.
        others: those that count no more, of the same seed with fewer epochs.
    """

    label: str
    runs: Sequence[Run]
    others: Sequence[Run] = ()

    @property
    def config(self) -> RunConfig:
        """The settings, but for the seed and the limits, which are those of the first run."""
        return self.runs[0].config

    @cached_property
    def counted(self) -> list[Run]:
        """The runs that the numbers are of: the complete ones, or if there is none all others."""
        complete = [run for run in self.runs if run.complete]
        return complete or [run for run in self.runs if run.best is not None]

    @property
    def complete(self) -> bool:
        """Whether there are numbers to compare with those of other points."""
        return any(run.complete for run in self.runs)

    @property
    def std(self) -> float | None:
        """The standard deviation of the noise, when it is there in full."""
        noise = self.config.noise
        if noise is None or noise.gamma is None:
            return None if noise is None else noise.std
        return parameters.std(noise.law, noise.gamma)

    @property
    def gamma(self) -> float | None:
        """The paper's parameter of the noise, if it was given."""
        return None if self.config.noise is None else self.config.noise.gamma

    @property
    def train(self) -> Estimate | None:
        """Perplexity on train at the best epoch, noise and dropout off."""
        return self._at_best("train_clean")

    @property
    def valid(self) -> Estimate | None:
        """The lowest perplexity on valid."""
        return self._at_best("best_valid")

    @property
    def test(self) -> Estimate | None:
        """Perplexity on test of the weights of the best epoch."""
        return self._at_best("test")

    @property
    def gap(self) -> Estimate | None:
        """``valid - train`` at the best epoch: how much better it knows the text it has seen."""
        bests = [run.best for run in self.counted if run.best is not None]
        if any(best["best_valid"] is None or best["train_clean"] is None for best in bests):
            return None
        return estimate(best["best_valid"] - best["train_clean"] for best in bests)

    @property
    def best_epochs(self) -> str:
        """When the best epoch was, of how many: ``7 of 14``, or ``6-9 of 14`` over seeds."""
        bests = [run.best["epoch"] for run in self.counted if run.best is not None]
        if not bests:
            return ""
        return f"{_range(bests)} of {_range([len(run.metrics) for run in self.counted])}"

    def _at_best(self, name: str) -> Estimate | None:
        return estimate(run.best[name] for run in self.counted if run.best is not None)


@dataclass(frozen=True)
class Task:
    """The points of one text and one model, the lowest validation perplexity first."""

    title: str
    points: Sequence[Point]

    @property
    def runs(self) -> list[Run]:
        """All runs of it."""
        return [run for point in self.points for run in (*point.runs, *point.others)]


def tasks(runs: Iterable[Run]) -> list[Task]:
    """Runs sorted into tasks and points."""
    by_title = _grouped(runs, lambda run: labels.task(run.config))
    return [Task(title, _points(some)) for title, some in sorted(by_title.items())]


def _points(runs: Sequence[Run]) -> list[Point]:
    grouped = _grouped(runs, lambda run: run.point)
    names = labels.points([some[0].config for some in grouped.values()])
    points = [
        Point(name, *_one_per_seed(some))
        for name, some in zip(names, grouped.values(), strict=True)
    ]
    return sorted(points, key=_order)


def _one_per_seed(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """The run of each seed that went furthest, and the others."""
    by_seed = _grouped(runs, lambda run: run.config.seed)
    chosen = [
        max(some, key=lambda run: (run.complete, len(run.metrics))) for some in by_seed.values()
    ]
    chosen.sort(key=lambda run: run.config.seed)
    return chosen, [run for run in runs if run not in chosen]


def _order(point: Point) -> tuple[Any, ...]:
    valid = point.valid
    return not point.complete, math.inf if valid is None else valid.mean, point.label


def _range(values: Sequence[int]) -> str:
    return str(min(values)) if min(values) == max(values) else f"{min(values)}-{max(values)}"


def _grouped(runs: Iterable[Run], key: Callable[[Run], Any]) -> dict[Any, list[Run]]:
    grouped: dict[Any, list[Run]] = {}
    for run in runs:
        grouped.setdefault(key(run), []).append(run)
    return grouped
