"""Gamma and Beta variates, centred, by identities between laws and by rejection.

Nothing is approximated: the laws are exact up to the rounding of floats and the finitely many
values of the uniform and normal variates that they are made of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

import torch
from torch import Tensor

from noisin.noise.variates import Variates

# For these shapes float32 keeps the digits of a variate. Below them log(u)/shape is too coarse near
# 0, and above them the variate lies too close to its mean: those are drawn in float64.
_FLOAT32_SHAPES = (0.01, 10.0)

# Shapes for which a variate is made of a few terms; of more, rejection is faster.
_WHOLE = (1.0, 2.0, 3.0, 4.0)
_WITH_A_HALF = (0.5, 1.5, 2.5, 3.5)


def centred_gamma(source: Variates, alpha: float) -> Tensor:
    """Gamma(alpha) variates less their mean alpha, for any alpha > 0.

    Shapes add up, and ``-log U ~ Gamma(1)``, ``N²/2 ~ Gamma(1/2)``: a few halves are a sum.
    """
    if alpha in _WHOLE + _WITH_A_HALF:
        return reduce(Tensor.add_, _minus_gamma_terms(source, alpha)).add_(alpha).neg_()
    wide = _wide_enough(source, alpha)
    return log_gamma(wide, alpha).exp_().sub_(alpha).to(source.dtype)


def centred_beta(source: Variates, a: float, b: float) -> Tensor:
    """Beta(a, b) variates less their mean a/(a + b), for any a, b > 0.

    For a whole b, ``Beta(a, b) = Beta(a, 1) · Beta(a + 1, 1) ··· Beta(a + b - 1, 1)``, where
    ``Beta(c, 1) = U^(1/c)``. In general it is ``G_a / (G_a + G_b)`` with Gamma variates.
    """
    if a > b:  # eta - E[eta] = E[1 - eta] - (1 - eta): the smaller side keeps its digits
        return centred_beta(source, b, a).neg_()
    wide = _wide_enough(source, a, b)
    if b in _WHOLE:
        eta = _log_beta(wide, a, int(b)).exp_()
    elif a in _WHOLE:
        eta = _log_beta(wide, b, int(a)).expm1_().neg_()
    else:
        eta = log_gamma(wide, a).sub_(log_gamma(wide, b)).sigmoid_()
    return eta.sub_(a / (a + b)).to(source.dtype)


def log_gamma(source: Variates, alpha: float) -> Tensor:
    """Logarithms of Gamma(alpha) variates, for those of a small alpha underflow."""
    if alpha < 1:  # Gamma(alpha) = Gamma(alpha + 1) · U^(1/alpha)
        log_u = source.uniform().log_()
        return log_gamma(source, alpha + 1).add_(log_u, alpha=1 / max(alpha, 1e-300))
    if source.is_plain:
        return _log_gamma_by_rejection(source, alpha)
    shapes = torch.full(source.shape, alpha, dtype=source.dtype, device=source.device)
    return torch._standard_gamma(shapes, generator=source.generator).log_()


def _log_gamma_by_rejection(source: Variates, alpha: float) -> Tensor:
    """Logarithms of Gamma(alpha) variates for alpha >= 1, all at once and the rejected again.

    With ``d = alpha - 1/3`` and ``y = N/(3 √d)`` the variate is ``d (1 + y)³``, accepted if
    ``log U < 3d (log(1 + y) - y + y²/2 - y³/3)``; 95 % are, or more.

    Marsaglia and Tsang, A simple method for generating gamma variables, 2000.
    """
    d = alpha - 1 / 3
    y = source.normal().div_(3 * math.sqrt(d))
    log_t = y.log1p()  # NaN below -1, which no comparison accepts
    bound = y.mul(-1 / 3).add_(1 / 2).mul_(y).sub_(1).mul_(y).add_(log_t)
    accepted = source.uniform().log_().div_(3 * d).lt(bound)
    log_eta = log_t.mul_(3).add_(math.log(d))
    rejected = accepted.logical_not_().view(-1).nonzero().squeeze(1)
    if rejected.numel():
        again = replace(source, shape=tuple(rejected.shape))
        log_eta.view(-1).index_copy_(0, rejected, _log_gamma_by_rejection(again, alpha))
    return log_eta


def _minus_gamma_terms(source: Variates, alpha: float) -> Iterator[Tensor]:
    for _ in range(int(alpha)):
        yield source.uniform().log_()
    if alpha in _WITH_A_HALF:
        yield source.normal().pow_(2).div_(-2)


def _log_beta(source: Variates, a: float, k: int) -> Tensor:
    """Logarithms of Beta(a, k) variates for a whole k."""
    return reduce(Tensor.add_, (source.uniform().log_().div_(a + i) for i in range(k)))


def _wide_enough(source: Variates, *shapes: float) -> Variates:
    low, high = _FLOAT32_SHAPES
    return source if all(low <= shape <= high for shape in shapes) else source.widened()
