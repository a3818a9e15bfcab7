"""Several seeds of one point: their mean and spread, and which run counts for a seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from noisin.experiments.records import Run
from noisin.tasks.unit import PERPLEXITY, Unit


@dataclass(frozen=True)
class Mean:
    """A score over seeds: its mean, and the sample standard deviation from two seeds on.

    >>> Mean.of([70.0, 72.0])
    Mean(mean=71.0, std=1.4142135623730951, n=2)
    >>> print(Mean.of([70.0, 72.0]), Mean.of([70.0]))
    71.0 ± 1.4 70.0
    """

    mean: float
    std: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """The mean of some values, of which one may be infinite."""
        try:
            mean = math.fsum(values) / len(values)
            known = len(values) > 1 and math.isfinite(mean)
            return cls(mean, statistics.stdev(values) if known else None, len(values))
        except OverflowError:  # the sum, or the spread, exceeds all floats
            return cls(math.inf, None, len(values))

    def __str__(self) -> str:
        return self.shown()

    def shown(self, unit: Unit = PERPLEXITY) -> str:
        """In the digits of a unit.

        >>> Mean.of([8.4, 8.5]).shown(Unit("nats", "frame"))
        '8.450 ± 0.071'
        """
        spread = "" if self.std is None else f" ± {number(self.std, unit)}"
        return number(self.mean, unit) + spread


def number(score: float, unit: Unit = PERPLEXITY) -> str:
    """A score in a few digits.

    >>> number(82.123), number(12345.6), number(float("inf"))
    ('82.1', '1.23e+04', 'inf')
    >>> number(-1.5, Unit("nats", "step"))
    '-1.500'
    """
    return f"{score:.{unit.digits}f}" if abs(score) < 10_000 else f"{score:.3g}"


def longest_of_each_seed(runs: Iterable[Run]) -> list[Run]:
    """Of several runs of one seed, the one that was trained longest."""
    chosen: dict[int, Run] = {}
    for run in runs:
        other = chosen.get(run.config.seed)
        if other is None or _reach(run) > _reach(other):
            chosen[run.config.seed] = run
    return list(chosen.values())


def _reach(run: Run) -> tuple[bool, int]:
    return run.complete, len(run.metrics)
