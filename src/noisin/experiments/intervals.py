"""Differences of paired values, with Student's confidence intervals. Nothing here needs scipy."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A mean over n values and its confidence interval, which needs two of them.

    >>> Interval.of([1.0, 2.0, 3.0])
    Interval(mean=2.0, low=-0.484..., high=4.484..., n=3)
    """

    mean: float
    low: float | None
    high: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float], level: float = 0.95) -> Interval:
        """Student's interval for the mean of independent values."""
        mean, n = math.fsum(values) / len(values), len(values)
        if n == 1:
            return cls(mean, None, None, n)
        half = student_t(level, n - 1) * statistics.stdev(values) / math.sqrt(n)
        return cls(mean, mean - half, mean + half, n)


def student_t(level: float, degrees: int) -> float:
    """The t with ``P(|T| < t) = level`` for Student's T of so many degrees of freedom.

    >>> round(student_t(0.95, 4), 4), round(student_t(0.95, 1), 3)
    (2.7764, 12.706)
    """
    low, high = 0.0, math.pi / 2  # of atan(t / sqrt(degrees)), in which the probability is smooth
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < level else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def two_sided(t: float, degrees: int) -> float:
    """``P(|T| >= |t|)`` for Student's T of so many degrees of freedom.

    >>> round(two_sided(2.7764, 4), 4), two_sided(0.0, 3)
    (0.05, 1.0)
    """
    return max(0.0, 1 - _within(math.atan(abs(t) / math.sqrt(degrees)), degrees))


def _within(angle: float, degrees: int) -> float:
    """``P(|T| < sqrt(degrees) tan(angle))``, a finite sum (Abramowitz and Stegun, 26.7.3-4)."""
    cosine, odd = math.cos(angle), degrees % 2
    term = total = 0.0 if degrees == 1 else (cosine if odd else 1.0)
    for k in range(2 + odd, degrees - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total
