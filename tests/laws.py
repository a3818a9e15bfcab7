"""The noise families, with scipy's laws for them, at the parameters of the paper and beyond."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy import stats as scipy_stats

from noisin import noise

DRAWS = 400_000


def law(n: noise.Family) -> Any:
    """The law of eps as a scipy distribution, from the paper's table by loc and scale."""
    g, a, s = n.gamma, getattr(n, "alpha", math.nan), scipy_stats
    match n:
        case noise.Gaussian():
            return s.norm(0, g)
        case noise.Bernoulli():
            return s.rv_discrete(values=([0, 1], [1 - g, g]))
        case noise.Gamma():
            return s.gamma(a, loc=-math.sqrt(a) * g, scale=g / math.sqrt(a))
        case noise.Gumbel():
            scale = g * math.sqrt(6) / math.pi
            return s.gumbel_r(loc=-np.euler_gamma * scale, scale=scale)
        case noise.Laplace():
            return s.laplace(scale=g / math.sqrt(2))
        case noise.Logistic():
            return s.logistic(scale=g * math.sqrt(3) / math.pi)
        case noise.Beta():
            k = (a + g) * math.sqrt((a + g + 1) / a)
            return s.beta(a, g, loc=-k * a / (a + g), scale=k)
        case noise.ChiSquare():
            return s.chi2(g, loc=-g / math.sqrt(2), scale=1 / math.sqrt(2))
    raise AssertionError(n)


# The gammas of the paper's results, for the families in which they change more than the scale.
PAPER = [
    *(noise.Bernoulli(g) for g in (0.33, 0.41, 0.5, 0.54, 0.64, 0.8)),
    *(noise.Beta(g) for g in (0.1, 0.2, 0.6, 0.7, 0.8, 1.07, 1.5)),
    *(noise.ChiSquare(g) for g in (0.2, 0.29, 0.82, 1.2, 1.5)),
    noise.Gamma(0.4),
]
CASES = [
    *PAPER,
    *(noise.Gaussian(g) for g in (1e-6, 0.1, 1.1, 1.37)),
    noise.Bernoulli(0.01),
    *(noise.Gamma(g) for g in (0.1, 1.39)),
    *(noise.Gamma(1.0, alpha=a) for a in (0.05, 0.5, 1.0, 2.5, 3.7, 1e6)),
    *(noise.Gumbel(g) for g in (0.1, 1.06, 1.39)),
    *(noise.Laplace(g) for g in (0.1, 1.06, 1.39)),
    *(noise.Logistic(g) for g in (0.1, 1.06, 1.39)),
    *(noise.Beta(g) for g in (1e-3, 2.0, 1e3)),
    *(noise.Beta(g, alpha=a) for g, a in ((1.0, 0.05), (0.5, 0.5), (1.3, 0.7), (0.02, 0.01))),
    *(noise.Beta(g, alpha=a) for g, a in ((40.0, 3.0), (7.5, 6.5))),
    *(noise.ChiSquare(g) for g in (0.01, 1.0, 3.0, 1e4)),
]


def draw(n: noise.Noise, size: int = DRAWS, dtype: torch.dtype = torch.float64) -> np.ndarray:
    g = torch.Generator().manual_seed(1111)
    eps = n.sample((size,), like=torch.empty((), dtype=dtype), generator=g)
    assert eps.dtype == dtype
    return eps.numpy()
