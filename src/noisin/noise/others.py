"""Laws beyond the paper's table, for questions about shape: without tails, and with heavy ones.

In the settings of a run they are ``noise.family = "noisin.noise.others:TwoPoint"`` and
``"noisin.noise.others:StudentT"``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from noisin._util import checks
from noisin.noise import gammas
from noisin.noise.family import Family
from noisin.noise.variates import Variates


class _OfStandardDeviation(Family):
    """A law whose gamma is its standard deviation, as that of Gaussian noise."""

    @classmethod
    def _row(cls) -> str:
        return "Gaussian"


@dataclass(frozen=True)
class TwoPoint(_OfStandardDeviation):
    """``eps = ±gamma``, each with probability 1/2: the least kurtosis that a law can have, 1.

    >>> import torch
    >>> g = torch.Generator().manual_seed(1111)
    >>> TwoPoint(0.5).sample((4,), like=torch.zeros(()), generator=g)
    tensor([ 0.5000,  0.5000,  0.5000, -0.5000])
    """

    def _draw(self, source: Variates) -> Tensor:
        return source.signed().sign_().mul_(self.gamma)


@dataclass(frozen=True)
class StudentT(_OfStandardDeviation):
    """``eps = gamma √(3/5) t``, with t Student's of 5 degrees of freedom: kurtosis 9.

    With fewer degrees, the kurtosis would be infinite. ``E[exp(t eps)]`` is finite for t = 0 only.

    >>> StudentT(0.5).variance
    0.25
    """

    @property
    def _largest(self) -> float:
        return 1e4 * self.gamma  # P(|eps| > 1e4 gamma) is 5e-20

    @property
    def exponential_moments(self) -> tuple[float, float]:
        """The open interval of t for which ``E[exp(t eps)]`` is finite: there is none."""
        return 0.0, 0.0

    def log_prob(self, eps: Tensor) -> Tensor:
        """The log density of ``eps``; torch's own has no meta device."""
        if self.gamma == 0:
            return super().log_prob(eps)
        checks.require_real("noise.StudentT", eps=eps)
        scale = self.gamma * math.sqrt(3 / 5)
        constant = math.lgamma(3) - math.lgamma(2.5) - math.log(scale * math.sqrt(5 * math.pi))
        return constant - 3 * (eps / scale).square().div(5).log1p()

    def _draw(self, source: Variates) -> Tensor:
        # t = N / √(G / 2.5) with G ~ Gamma(2.5), half of a chi-square.
        wide = source.widened()
        G = gammas.centred_gamma(wide, 2.5).add_(2.5)
        eps = wide.normal().mul_(G.rsqrt_()).mul_(self.gamma * math.sqrt(1.5))
        return eps.to(source.dtype)
