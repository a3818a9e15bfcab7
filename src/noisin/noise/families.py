r"""Noise: the eight families of the paper's table, centred and scaled.

A noise draws ``eps`` with ``E[eps] = 0`` and ``Var(eps) = variance``, independently per entry. The
mode of the injection adds the mean: ``z = h + eps`` or ``z = h * (1 + eps)``, so a noise-injected
RNN is unbiased by construction. The paper's mean-one noise is our ``1 + eps``.

=======================  ==============================================  =================
family                   eps, with eta the standard law                  variance
=======================  ==============================================  =================
``Gaussian(gamma)``      eta                                             gamma²
``Bernoulli(gamma)``     eta / gamma - 1                                 (1 - gamma)/gamma
``Gamma(gamma, alpha)``  (eta - alpha·gamma) / √alpha                    gamma²
``Gumbel(gamma)``        √6 (eta - δ·gamma) / π, with δ = 0.5772...      gamma²
``Laplace(gamma)``       eta / √2                                        gamma²
``Logistic(gamma)``      √3 eta / π                                      gamma²
``Beta(gamma, alpha)``   (α + γ) √((α + γ + 1)/α) (eta - α/(α + γ))      gamma
``ChiSquare(gamma)``     (eta - gamma) / √2                              gamma
=======================  ==============================================  =================

What ``gamma`` means differs between families, as it does in the paper: compare noises by ``.std``,
and make them alike with ``.from_variance``.

A custom noise is a frozen dataclass with ``variance`` and ``sample``:

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Uniform:
...     width: float
...     @property
...     def variance(self) -> float:
...         return self.width**2 / 12
...     def sample(self, shape, *, like, generator=None):
...         u = torch.rand(shape, dtype=like.dtype, device=like.device, generator=generator)
...         return self.width * (u - 0.5)
>>> validate(Uniform(width=1.0))
Uniform(width=1.0)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, distributions

from noisin._util import checks
from noisin.noise import gammas, ranges
from noisin.noise.base import Noise, require_noise
from noisin.noise.custom import probe
from noisin.noise.family import Family, Law
from noisin.noise.variates import Variates

EULER_MASCHERONI = 0.5772156649015329


@dataclass(frozen=True)
class Gaussian(Family):
    """``eta ~ N(0, gamma²)``, ``eps = eta``: gamma is the standard deviation."""

    @property
    def _eta(self) -> Law:
        return distributions.Normal, 0.0, self.gamma

    def _draw(self, source: Variates) -> Tensor:
        return source.normal().mul_(self.gamma)


@dataclass(frozen=True)
class Bernoulli(Family):
    """``eta ~ Bernoulli(gamma)``, ``eps = eta / gamma - 1``: gamma is the *keep* probability.

    A larger gamma is less noise, and gamma = 1 is none. Multiplicative Bernoulli noise is dropout
    of the hidden state at rate ``1 - gamma``.
    """

    @property
    def _largest(self) -> float:
        return 1 / self.gamma

    def _draw(self, source: Variates) -> Tensor:
        # Float32 is too coarse to keep, or to drop, with a tiny probability.
        rare = min(self.gamma, 1 - self.gamma) < 1e-3
        eta = (source.widened() if rare else source).indicator(self.gamma)
        return eta.to(source.dtype).div_(self.gamma).sub_(1)


@dataclass(frozen=True)
class Gamma(Family):
    """``eta ~ Gamma(shape alpha, scale gamma)``, ``eps = (eta - alpha·gamma)/√alpha``."""

    alpha: float = 2.0

    @property
    def _largest(self) -> float:
        return 40 * self.gamma * max(1.0, 1 / math.sqrt(self.alpha))

    @property
    def _eta(self) -> Law:
        return distributions.Gamma, self.alpha, 1 / self.gamma

    @property
    def exponential_moments(self) -> tuple[float, float]:
        """The open interval of t for which ``E[exp(t eps)]`` is finite."""
        return -math.inf, math.sqrt(self.alpha) / self.gamma

    def _draw(self, source: Variates) -> Tensor:
        return gammas.centred_gamma(source, self.alpha).mul_(self.gamma / math.sqrt(self.alpha))


@dataclass(frozen=True)
class Gumbel(Family):
    """``eta ~ Gumbel(0, gamma)``, ``eps = √6 (eta - δ·gamma)/π`` with δ = 0.5772..."""

    @property
    def _eta(self) -> Law:
        return distributions.Gumbel, 0.0, self.gamma

    @property
    def exponential_moments(self) -> tuple[float, float]:
        """The open interval of t for which ``E[exp(t eps)]`` is finite."""
        return -math.inf, math.pi / (math.sqrt(6) * self.gamma)

    def _draw(self, source: Variates) -> Tensor:
        # eta = -log(-log(1 - u)): its long tail is where u is small, and fine.
        u = source.uniform().clamp_max_(1 - torch.finfo(source.dtype).eps / 2)
        minus_eta = u.neg_().log1p_().neg_().log_()
        return minus_eta.add_(EULER_MASCHERONI).mul_(-self.gamma * math.sqrt(6) / math.pi)


@dataclass(frozen=True)
class Laplace(Family):
    """``eta ~ Laplace(0, gamma)``, ``eps = eta/√2``."""

    @property
    def _eta(self) -> Law:
        return distributions.Laplace, 0.0, self.gamma

    @property
    def exponential_moments(self) -> tuple[float, float]:
        """The open interval of t for which ``E[exp(t eps)]`` is finite."""
        return -math.sqrt(2) / self.gamma, math.sqrt(2) / self.gamma

    def _draw(self, source: Variates) -> Tensor:
        s = source.signed()  # |eta| = -gamma log |s|, and the sign of s
        return s.abs().log_().mul_(-self.gamma / math.sqrt(2)).copysign_(s)


@dataclass(frozen=True)
class Logistic(Family):
    """``eta ~ Logistic(0, gamma)``, ``eps = √3 eta/π``."""

    @property
    def exponential_moments(self) -> tuple[float, float]:
        """The open interval of t for which ``E[exp(t eps)]`` is finite."""
        return -math.pi / (math.sqrt(3) * self.gamma), math.pi / (math.sqrt(3) * self.gamma)

    def log_prob(self, eps: Tensor) -> Tensor:
        """The log density of ``eps``; torch has no logistic distribution."""
        if self.gamma == 0:
            return super().log_prob(eps)
        checks.require_real("noise.Logistic", eps=eps)
        rate = math.pi / (math.sqrt(3) * self.gamma)
        return math.log(rate) - eps * rate - 2 * torch.nn.functional.softplus(-eps * rate)

    def _draw(self, source: Variates) -> Tensor:
        s = source.signed()  # |eta| = -gamma logit(|s|/2), and the sign of s
        scale = self.gamma * math.sqrt(3) / math.pi
        return s.abs().div_(2).logit_().mul_(-scale).copysign_(s)


@dataclass(frozen=True)
class Beta(Family):
    """``eta ~ Beta(alpha, gamma)``, ``eps = (α+γ) √((α+γ+1)/α) (eta - α/(α+γ))``."""

    alpha: float = 2.0

    @property
    def _scale(self) -> float:
        total = self.alpha + self.gamma
        return total * math.sqrt((total + 1) / self.alpha)

    @property
    def _largest(self) -> float:
        return self._scale

    @property
    def _eta(self) -> Law:
        return distributions.Beta, self.alpha, self.gamma

    def _draw(self, source: Variates) -> Tensor:
        return gammas.centred_beta(source, self.alpha, self.gamma).mul_(self._scale)


@dataclass(frozen=True)
class ChiSquare(Family):
    """``eta ~ Chi-square(gamma)``, ``eps = (eta - gamma)/√2``: gamma degrees of freedom."""

    @property
    def _largest(self) -> float:
        return 40 * max(2.0, self.std)

    @property
    def _eta(self) -> Law:
        return (distributions.Chi2, self.gamma)

    @property
    def exponential_moments(self) -> tuple[float, float]:
        """The open interval of t for which ``E[exp(t eps)]`` is finite."""
        return -math.inf, 1 / math.sqrt(2)

    def _draw(self, source: Variates) -> Tensor:
        return gammas.centred_gamma(source, self.gamma / 2).mul_(math.sqrt(2))


FAMILIES: Mapping[str, type[Family]] = {name: globals()[law] for name, law in ranges.LAWS.items()}

# So that a checkpoint that has a noise among its settings can be loaded with weights_only=True.
torch.serialization.add_safe_globals(list(FAMILIES.values()))


def validate(noise: object) -> Noise:
    """Return ``noise`` if it is one, else raise. A custom noise must be centred.

    A trial draw checks that; it never touches the global random stream.
    """
    from noisin.noise.biased import Biased

    checked = require_noise(noise)
    # Those are centred by construction, or not on purpose.
    if type(checked) not in (*FAMILIES.values(), Biased):
        probe(checked)
    return checked
