"""Several seeds of one thing: their mean and spread, and which run counts for a seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from noisin.experiments.records import Run


@dataclass(frozen=True)
class Mean:
    """A perplexity over seeds: its mean, and the sample standard deviation from two seeds on.

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
        """That of some values, of which one may be infinite."""
        try:
            mean = math.fsum(values) / len(values)
        except OverflowError:  # the sum is beyond all floats
            mean = math.inf
        known = len(values) > 1 and math.isfinite(mean)
        return cls(mean, statistics.stdev(values) if known else None, len(values))

    def __str__(self) -> str:
        return number(self.mean) + ("" if self.std is None else f" ± {number(self.std)}")


def number(perplexity: float) -> str:
    """A perplexity in a few digits.

    >>> number(82.123), number(12345.6), number(float("inf"))
    ('82.1', '1.23e+04', 'inf')
    """
    return f"{perplexity:.1f}" if perplexity < 10_000 else f"{perplexity:.3g}"


def longest_of_each_seed(runs: Iterable[Run]) -> list[Run]:
    """Two runs of one seed are one and the same; the one that went furthest stands for both."""
    chosen: dict[int, Run] = {}
    for run in runs:
        other = chosen.get(run.config.seed)
        if other is None or _reach(run) > _reach(other):
            chosen[run.config.seed] = run
    return list(chosen.values())


def _reach(run: Run) -> tuple[bool, int]:
    return run.complete, len(run.metrics)
