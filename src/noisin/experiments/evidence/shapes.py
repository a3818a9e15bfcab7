"""Skewness and kurtosis of the laws of noise: exact, from the spread and the shape of each."""

from __future__ import annotations

import math
from collections.abc import Mapping

from noisin.errors import InvalidValue
from noisin.training.config import NoiseConfig

Moments = tuple[float, float]  # skewness, kurtosis; those of a Gaussian are 0 and 3
DEFAULT_ALPHA = 2.0
# Of gumbel: 12 √6 ζ(3) / π³ and 3 + 12/5.
_GUMBEL = (12 * math.sqrt(6) * 1.2020569031595942 / math.pi**3, 5.4)


# Laws whose shape is the same at every spread.
_FIXED: Mapping[str, Moments] = {
    "gaussian": (0.0, 3.0),
    "gumbel": _GUMBEL,
    "laplace": (0.0, 6.0),
    "logistic": (0.0, 4.2),
    "noisin.noise.others:TwoPoint": (0.0, 1.0),
    "noisin.noise.others:StudentT": (0.0, 9.0),
}


def moments(noise: NoiseConfig) -> Moments:
    """The skewness and the kurtosis of a noise.

    >>> moments(NoiseConfig(family="bernoulli", std=1.0))
    (0.0, 1.0)
    >>> moments(NoiseConfig(family="laplace", gamma=0.3))
    (0.0, 6.0)
    """
    if noise.family in _FIXED:
        return _FIXED[noise.family]
    std = noise.known_std
    assert std is not None  # of the families of the paper it is known
    alpha = DEFAULT_ALPHA if noise.alpha is None else noise.alpha
    if noise.family == "gamma":
        return 2 / math.sqrt(alpha), 3 + 6 / alpha
    if noise.family == "chi-square":
        return math.sqrt(8) / std, 3 + 12 / std**2
    if noise.family == "beta":
        return _beta(alpha, std**2)
    if noise.family == "bernoulli":
        return _bernoulli(1 / (1 + std**2))
    raise InvalidValue(f"moments: the shape of {noise.family} is not known.")


def _bernoulli(p: float) -> Moments:
    q = p * (1 - p)
    return (1 - 2 * p) / math.sqrt(q), 3 + (1 - 6 * q) / q


def _beta(a: float, b: float) -> Moments:
    n = a + b
    skewness = 2 * (b - a) * math.sqrt(n + 1) / ((n + 2) * math.sqrt(a * b))
    above = (a - b) ** 2 * (n + 1) - a * b * (n + 2)
    return skewness, 3 + 6 * above / (a * b * (n + 2) * (n + 3))
