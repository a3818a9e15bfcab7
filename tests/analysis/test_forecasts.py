"""CRPS and coverage against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from noisin.analysis.forecasts import coverage, crps, seasonal_naive
from noisin.errors import InvalidValue
from tests.stats import assert_mean


def gaussian_crps(mu: float, sigma: float, y: float) -> float:
    """Gneiting et al. (2005)."""
    z = (y - mu) / sigma
    law = stats.norm
    return float(sigma * (z * (2 * law.cdf(z) - 1) + 2 * law.pdf(z) - 1 / math.sqrt(math.pi)))


@pytest.mark.parametrize("y", [-3.0, 0.4, 2.0])
@pytest.mark.parametrize("K", [2, 7])
def test_the_estimate_has_the_mean_of_the_closed_form(K: int, y: float) -> None:
    samples = np.random.RandomState(0).normal(0.5, 2.0, (K, 20_000))
    found = crps(samples, np.full(20_000, y))
    assert_mean(found, gaussian_crps(0.5, 2.0, y), float(found.std()))


def test_the_closed_form_is_the_integral() -> None:
    """``∫ (F(x) - 1(x ≥ y))² dx``, the definition."""
    x = np.linspace(-30, 30, 200_001)
    integrand = (stats.norm.cdf(x, 0.5, 2.0) - (x >= 0.4)) ** 2
    integral = integrand.sum() * (x[1] - x[0])
    assert integral == pytest.approx(gaussian_crps(0.5, 2.0, 0.4), abs=1e-3)


def test_all_pairs_by_brute_force() -> None:
    random = np.random.RandomState(1)
    samples, y = random.standard_normal((6, 4, 3)), random.standard_normal((4, 3))
    pairs = [np.abs(a - b) for i, a in enumerate(samples) for j, b in enumerate(samples) if i != j]
    expected = np.abs(samples - y).mean(0) - np.mean(pairs, 0) / 2
    np.testing.assert_allclose(crps(samples, y), expected, rtol=1e-12)


def test_a_sharper_forecast_of_the_truth_is_better() -> None:
    random = np.random.RandomState(2)
    y = random.standard_normal(4000)
    scores = [crps(random.normal(0, s, (50, 4000)), y).mean() for s in (0.3, 1.0, 3.0)]
    assert scores[1] < min(scores[0], scores[2])


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_coverage_of_a_calibrated_forecast(level: float) -> None:
    random = np.random.RandomState(3)
    samples, y = random.standard_normal((999, 4000)), random.standard_normal(4000)
    inside = coverage(samples, y, level)
    assert_mean(np.array([inside]), level, math.sqrt(level * (1 - level) * (1 / 4000 + 4 / 999)))


def test_seasonal_naive_repeats_the_last_season() -> None:
    past = np.arange(20.0).reshape(10, 2)
    assert np.array_equal(seasonal_naive(past, 4, 9), past[[6, 7, 8, 9, 6, 7, 8, 9, 6]])
    with pytest.raises(InvalidValue, match="a season of 1 to 10 steps"):
        seasonal_naive(past, 11, 3)


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(InvalidValue, match=r"got \(5, 3\) and \(4,\)"):
        crps(np.zeros((5, 3)), np.zeros(4))
