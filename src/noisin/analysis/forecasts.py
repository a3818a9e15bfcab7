"""Scores of forecasts that are given as samples: CRPS and coverage; the seasonal-naive forecast."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noisin.errors import InvalidValue

Array = NDArray[np.float64]


def crps(samples: Array, observed: Array) -> Array:
    r"""The continuous ranked probability score of K samples, ``(K, ...)``, for each observation.

    ``E|X - y| - E|X - X'| / 2``, where X and X' are independent forecasts (Gneiting and Raftery,
    2007), in the unit of the observation; lower is better. The second term is estimated without
    bias, over all pairs of different samples. Of a single sample, a point forecast, it is zero, and
    the score is the absolute error.

    >>> crps(np.array([1.0, 3.0]), np.array(2.0)).item()
    0.0
    >>> crps(np.array([3.0]), np.array(1.0)).item()
    2.0
    """
    K = len(samples)
    if not K or samples.shape[1:] != observed.shape:
        raise InvalidValue(
            f"crps: expected samples (K, ...) of observations (...), got {samples.shape} and "
            f"{observed.shape}."
        )
    error = np.abs(samples - observed).mean(0)
    if K == 1:
        return np.asarray(error)
    ordered = np.sort(samples, axis=0)
    rank = 2 * np.arange(1, K + 1) - K - 1  # Σ_ij |x_i - x_j| = 2 Σ_i (2i - K - 1) x_(i)
    spread = np.tensordot(rank, ordered, 1) / (K * (K - 1))
    return np.asarray(error - spread)


def coverage(samples: Array, observed: Array, level: float) -> float:
    """The share of observations in the central band of a level; of a calibrated one, the level.

    The band is between the quantiles ``(1 ± level) / 2`` of the samples, ``(K, ...)``.

    >>> coverage(np.arange(101.0)[:, None], np.array([3.0]), 0.9)
    0.0
    """
    low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return float(((low <= observed) & (observed <= high)).mean())


def seasonal_naive(past: Array, season: int, length: int) -> Array:
    """The last season of the past, repeated: the forecast that any other must beat.

    >>> seasonal_naive(np.array([9.0, 1.0, 2.0, 3.0]), 3, 5).tolist()
    [1.0, 2.0, 3.0, 1.0, 2.0]
    """
    if not 1 <= season <= len(past):
        raise InvalidValue(
            f"seasonal_naive: expected a season of 1 to {len(past)} steps, which are known, got "
            f"{season}."
        )
    return past[-season:][np.arange(length) % season]
