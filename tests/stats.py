"""Statistical checks under one false-alarm rate for the whole suite.

A statistical test that is right can still fail by bad luck. The suite as a whole does so with
probability at most ``SUITE_FALSE_ALARM_RATE``, over the choice of its seeds: at most ``MAX_CHECKS``
checks are made (``conftest.py`` counts them and fails the run beyond that), each at ``LEVEL``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

SUITE_FALSE_ALARM_RATE = 1e-4
MAX_CHECKS = 2000
LEVEL = SUITE_FALSE_ALARM_RATE / MAX_CHECKS
Z = float(stats.norm.isf(LEVEL / 2))

checks_made = 0


def _count() -> None:
    global checks_made
    checks_made += 1


def assert_mean(sample: np.ndarray, expected: float, std: float) -> None:
    """The mean of ``sample`` is ``expected``, given the standard deviation of one draw."""
    _count()
    stderr = std / math.sqrt(sample.size)
    error = float(sample.mean()) - expected
    z = error / stderr if stderr else error * math.inf
    if math.isnan(z):
        z = 0.0
    assert abs(z) < Z, (
        f"mean {sample.mean():.6g}, expected {expected:.6g} ± {stderr:.2g} ({z:+.1f} σ)"
    )


def assert_standard_errors(z: Sequence[float], name: str) -> None:
    """Independent figures, each in its own standard errors, have squares of mean one."""
    _count()
    n = len(z)
    found = sum(value**2 for value in z) / n
    low, high = stats.chi2.ppf(LEVEL / 2, n) / n, stats.chi2.isf(LEVEL / 2, n) / n
    assert low < found < high, (
        f"{name}: mean square {found:.3g} of {n} figures in standard errors, expected one, in "
        f"({low:.3g}, {high:.3g})"
    )


def assert_law(sample: np.ndarray, cdf: Callable[[np.ndarray], np.ndarray], ulps: int = 8) -> None:
    """``sample`` follows ``cdf``, by the Dvoretzky-Kiefer-Wolfowitz inequality.

    ``P(sup |F_n - F| > d) <= 2 exp(-2 n d²)`` for every law and every n. A float holds a value
    only up to rounding, which matters where a density has a pole, so the empirical law is compared
    with the exact one a few units in the last place to the left and to the right.
    """
    _count()
    n = sample.size
    bound = math.sqrt(math.log(2 / LEVEL) / (2 * n))
    x = np.sort(sample)
    slack = ulps * np.spacing(np.abs(x).max())
    x = x.astype(np.float64)
    # F_n jumps at each point: it may be neither too high right of it nor too low left of it.
    too_high = np.arange(1, n + 1) / n - cdf(x + slack)
    too_low = cdf(x - slack) - np.arange(n) / n
    distance = max(too_high.max(), too_low.max())
    assert distance < bound, f"distance of the laws {distance:.4g}, bound {bound:.4g} for n = {n}"
