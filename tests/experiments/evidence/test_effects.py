"""Least squares, lowest points and the shapes of laws, against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from noisin.errors import InvalidValue
from noisin.experiments.evidence.effects import least_squares, lowest
from noisin.experiments.evidence.shapes import moments
from noisin.training.config import NoiseConfig


@pytest.mark.parametrize("n", [3, 8, 30])
def test_a_slope(n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=n), rng.normal(size=n)
    _, found = least_squares(y.tolist(), [1.0] * n, x.tolist())
    expected = stats.linregress(x, y)
    half = stats.t.ppf(0.975, n - 2) * expected.stderr
    assert found.value == pytest.approx(expected.slope)
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half))


def test_means_of_groups_are_removed() -> None:
    """With a mean for each group, the slope is that of the deviations from them."""
    rng = np.random.default_rng(1)
    groups, x = np.repeat(range(4), 5), rng.normal(size=20)
    y = 3 * groups + 0.5 * x + rng.normal(0, 0.1, 20)
    columns = [(groups == g).astype(float).tolist() for g in range(4)]
    *_, found = least_squares(y.tolist(), *columns, x.tolist())

    def centred(values: np.ndarray) -> np.ndarray:
        return values - np.array([values[groups == g].mean() for g in groups])

    assert found.value == pytest.approx(stats.linregress(centred(x), centred(y)).slope)


@pytest.mark.parametrize(("y", "x"), [([1.0, 2.0], [0.0, 1.0]), ([1.0, 2.0, 3.0], [2.0] * 3)])
def test_too_little_to_know(y: list[float], x: list[float]) -> None:
    with pytest.raises(InvalidValue, match="do not determine 2 coefficients"):
        least_squares(y, [1.0] * len(y), x)


@pytest.mark.parametrize(
    ("y", "place"),
    [
        (lambda x: (x - 0.3) ** 2, 0.3),
        (lambda x: (x - 5) ** 2, 1.0),  # beyond the range
        (lambda x: -((x - 0.1) ** 2), -1.0),  # lowest at the end that is further from the top
        (lambda x: 2 * x, -1.0),
        (lambda x: 0 * x, -1.0),
    ],
)
def test_lowest(y: object, place: float) -> None:
    x = np.linspace(-1, 1, 5)
    assert callable(y)
    assert lowest(x.tolist(), y(x).tolist()) == pytest.approx(place)


LAWS = {
    "gaussian": lambda v: stats.norm(),
    "bernoulli": lambda v: stats.bernoulli(1 / (1 + v)),
    "gamma": lambda v: stats.gamma(2),
    "gumbel": lambda v: stats.gumbel_r(),
    "laplace": lambda v: stats.laplace(),
    "logistic": lambda v: stats.logistic(),
    "beta": lambda v: stats.beta(2, v),
    "chi-square": lambda v: stats.chi2(v),
    "noisin.noise.others:StudentT": lambda v: stats.t(5),
    "noisin.noise.others:TwoPoint": lambda v: stats.bernoulli(0.5),
}


@pytest.mark.parametrize("std", [0.4, 0.8, 1.7])
@pytest.mark.parametrize("family", LAWS)
def test_shapes(family: str, std: float) -> None:
    skewness, kurtosis = LAWS[family](std**2).stats(moments="sk")
    found = moments(NoiseConfig(family=family, std=std))
    assert found == pytest.approx((float(skewness), float(kurtosis) + 3), abs=1e-9)


def test_another_shape() -> None:
    found = moments(NoiseConfig(family="gamma", std=0.5, alpha=8.0))
    assert found == pytest.approx((2 / np.sqrt(8), 3 + 6 / 8))
    with pytest.raises(InvalidValue, match="the shape of mine:Own is not known"):
        moments(NoiseConfig(family="mine:Own", std=0.5))
