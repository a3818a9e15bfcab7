"""Student's intervals, against scipy's."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from noisin.experiments.intervals import Interval, student_t


@pytest.mark.parametrize("degrees", [*range(1, 12), 30, 101, 1000])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_quantiles(level: float, degrees: int) -> None:
    expected = stats.t.ppf(0.5 + level / 2, degrees)
    assert student_t(level, degrees) == pytest.approx(expected, rel=1e-9)


def test_an_interval() -> None:
    values = [0.3, -0.1, 0.25, 0.7]
    low, high = stats.t.interval(0.95, 3, loc=math.fsum(values) / 4, scale=stats.sem(values))
    found = Interval.of(values)
    assert (found.low, found.high, found.n) == (pytest.approx(low), pytest.approx(high), 4)
    assert Interval.of([1.5]) == Interval(1.5, None, None, 1)
