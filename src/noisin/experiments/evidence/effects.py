"""Effects of numbers on scores: least squares with intervals, and the lowest point of a curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noisin.errors import InvalidValue
from noisin.experiments.intervals import student_t, two_sided


@dataclass(frozen=True)
class Effect:
    """A coefficient of least squares, its 95 % interval, and its p against zero."""

    value: float
    low: float
    high: float
    p: float


def least_squares(y: Sequence[float], *columns: Sequence[float]) -> list[Effect]:
    """The coefficients of ordinary least squares, one for each column.

    >>> x = [0.0, 1.0, 2.0, 3.0]
    >>> _, slope = least_squares([1.0, 3.1, 4.9, 7.0], [1.0] * 4, x)
    >>> round(slope.value, 2), round(slope.low, 2), round(slope.high, 2)
    (1.98, 1.8, 2.16)
    """
    X = np.column_stack(columns).astype(float)
    n, k = X.shape
    if n <= k or np.linalg.matrix_rank(X) < k:
        raise InvalidValue(f"least_squares: {n} values do not determine {k} coefficients.")
    inverse = np.linalg.inv(X.T @ X)
    found = inverse @ X.T @ np.asarray(y, float)
    variance = float(np.square(y - X @ found).sum()) / (n - k)
    errors = np.sqrt(variance * np.diag(inverse))
    t = student_t(0.95, n - k)
    return [
        Effect(
            b, b - t * e, b + t * e, two_sided(b / e if e else math.copysign(math.inf, b), n - k)
        )
        for b, e in zip(found.tolist(), errors.tolist(), strict=True)
    ]


def lowest(x: Sequence[float], y: Sequence[float]) -> float:
    """The x of the lowest point, within the range of x, of the parabola through some points.

    The parabola is that of least squares. One that is not convex is lowest at an end.

    >>> lowest([0.0, 1.0, 3.0], [4.0, 1.0, 1.0]), lowest([0.0, 1.0, 2.0], [3.0, 2.0, 1.0])
    (2.0, 2.0)
    """
    middle = float(np.mean(x))  # for accuracy
    a, b, _ = np.polyfit(np.asarray(x, float) - middle, y, 2)
    ends = (min(x), max(x))
    if a > 1e-12 * (1 + abs(b)):
        return float(np.clip(middle - b / (2 * a), *ends).round(12))

    def height(place: float) -> float:
        return float(a * (place - middle) ** 2 + b * (place - middle))

    return min(ends, key=height)
