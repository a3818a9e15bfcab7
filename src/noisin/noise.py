r"""Noise: the eight families of the paper's table, centred and scaled, and one's own.

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

A noise of one's own is a frozen dataclass with ``variance`` and ``sample``:

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
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Generator, Tensor

from noisin import parameters
from noisin.centred import Noise as Noise
from noisin.centred import from_distribution as from_distribution
from noisin.centred import probe, require_noise
from noisin.errors import InvalidType, InvalidValue
from noisin.source import Source

EULER_MASCHERONI = 0.5772156649015329


@dataclass(frozen=True)
class Family(ABC):
    """One row of the paper's noise table: a law with spread ``gamma``.

    A family states its standard deviation, the gamma of a given variance, and how to draw.
    """

    gamma: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = parameters.check(type(self).__name__, field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)

    @property
    @abstractmethod
    def std(self) -> float:
        """The standard deviation, by which families compare."""

    @property
    def variance(self) -> float:
        """``Var(eps)``."""
        return self.std * self.std

    @classmethod
    @abstractmethod
    def _gamma(cls, variance: float) -> float: ...

    @abstractmethod
    def _draw(self, source: Source) -> Tensor: ...

    @property
    def _largest(self) -> float:
        """A size that draws do not exceed in practice (all tails are exponential or lighter)."""
        return 40 * self.std

    @classmethod
    def from_variance(cls, variance: float, **alpha: float) -> Self:
        """The member of the family with this variance (``alpha`` where the family has one).

        >>> Bernoulli.from_variance(1.5), Gumbel.from_variance(1.44), Beta.from_variance(1.07)
        (Bernoulli(gamma=0.4), Gumbel(gamma=1.2), Beta(gamma=1.07, alpha=2.0))
        """
        variance = parameters.check_variance(cls.__name__, variance)
        return cls(cls._gamma(variance), **alpha)

    def sample(
        self, shape: Sequence[int], *, like: Tensor, generator: Generator | None = None
    ) -> Tensor:
        """Draw ``eps`` of this shape, in the dtype and on the device of ``like``.

        >>> g = torch.Generator().manual_seed(1111)
        >>> Bernoulli(0.5).sample((6,), like=torch.zeros(()), generator=g)
        tensor([ 1.,  1., -1.,  1., -1., -1.])
        """
        if not like.is_floating_point():
            raise InvalidType(
                f"noise.{type(self).__name__}: noise is real-valued and cannot be drawn like a "
                f"tensor of {like.dtype}. Pass a floating-point tensor as `like`."
            )
        if self.std == 0:
            return torch.zeros(tuple(shape), dtype=like.dtype, device=like.device)
        limit = torch.finfo(like.dtype).max
        if self._largest > limit:
            raise InvalidValue(
                f"noise.{type(self).__name__}: {self} draws values near {self._largest:.3g} and "
                f"{like.dtype} ends at {limit:.3g}. Use less noise or a wider dtype."
            )
        # Half precision is too coarse to draw in.
        wide = torch.promote_types(like.dtype, torch.float32)
        eps = self._draw(Source(tuple(shape), wide, like.device, generator))
        return eps if wide == like.dtype else eps.clamp(-limit, limit).to(like.dtype)


@dataclass(frozen=True)
class _ScaleFamily(Family):
    """A family whose gamma is the standard deviation."""

    @property
    def std(self) -> float:
        """The standard deviation: gamma."""
        return self.gamma

    @classmethod
    def _gamma(cls, variance: float) -> float:
        return math.sqrt(variance)


@dataclass(frozen=True)
class _VarianceFamily(Family):
    """A family whose gamma is the variance."""

    @property
    def std(self) -> float:
        """The standard deviation: √gamma."""
        return math.sqrt(self.gamma)

    @property
    def variance(self) -> float:
        """``Var(eps)``: gamma."""
        return self.gamma

    @classmethod
    def _gamma(cls, variance: float) -> float:
        return variance


@dataclass(frozen=True)
class Gaussian(_ScaleFamily):
    """``eta ~ N(0, gamma²)``, ``eps = eta``: gamma is the standard deviation."""

    def _draw(self, source: Source) -> Tensor:
        return source.normal().mul_(self.gamma)


@dataclass(frozen=True)
class Bernoulli(Family):
    """``eta ~ Bernoulli(gamma)``, ``eps = eta / gamma - 1``: gamma is the *keep* probability.

    A larger gamma is less noise, and gamma = 1 is none. Multiplicative Bernoulli noise is dropout
    of the hidden state at rate ``1 - gamma``.
    """

    @property
    def std(self) -> float:
        """The standard deviation ``√((1 - gamma)/gamma)``."""
        return math.sqrt(self.variance)

    @property
    def variance(self) -> float:
        """``Var(eps) = (1 - gamma)/gamma``."""
        return (1 - self.gamma) / self.gamma

    @classmethod
    def _gamma(cls, variance: float) -> float:
        return 1 / (1 + variance)

    @property
    def _largest(self) -> float:
        return 1 / self.gamma

    def _draw(self, source: Source) -> Tensor:
        # A float32 uniform is a multiple of 2⁻²⁴: too coarse to keep with a tiny probability.
        u = source.widened().uniform() if self.gamma < 1e-3 else source.uniform()
        return u.lt(self.gamma).to(source.dtype).div_(self.gamma).sub_(1)


@dataclass(frozen=True)
class Gamma(_ScaleFamily):
    """``eta ~ Gamma(shape alpha, scale gamma)``, ``eps = (eta - alpha·gamma)/√alpha``."""

    alpha: float = 2.0

    @property
    def _largest(self) -> float:
        return 40 * self.gamma * max(1.0, 1 / math.sqrt(self.alpha))

    def _draw(self, source: Source) -> Tensor:
        eta = source.log_gamma(self.alpha).exp_()
        return eta.sub_(self.alpha).mul_(self.gamma / math.sqrt(self.alpha)).to(source.dtype)


@dataclass(frozen=True)
class Gumbel(_ScaleFamily):
    """``eta ~ Gumbel(0, gamma)``, ``eps = √6 (eta - δ·gamma)/π`` with δ = 0.5772..."""

    def _draw(self, source: Source) -> Tensor:
        eta = source.uniform().log_().neg_().log_().neg_()
        return eta.sub_(EULER_MASCHERONI).mul_(self.gamma * math.sqrt(6) / math.pi)


@dataclass(frozen=True)
class Laplace(_ScaleFamily):
    """``eta ~ Laplace(0, gamma)``, ``eps = eta/√2``."""

    def _draw(self, source: Source) -> Tensor:
        # Two tails from one uniform: u and 1 - u never reach 0, so 1 - |2u - 1| does not either.
        v = source.uniform().mul_(2).sub_(1)
        tail = v.abs().neg_().clamp_min_(torch.finfo(source.dtype).eps / 2 - 1).log1p_()
        return tail.mul_(-self.gamma / math.sqrt(2)).copysign_(v)


@dataclass(frozen=True)
class Logistic(_ScaleFamily):
    """``eta ~ Logistic(0, gamma)``, ``eps = √3 eta/π``."""

    def _draw(self, source: Source) -> Tensor:
        return source.uniform().logit_().mul_(self.gamma * math.sqrt(3) / math.pi)


@dataclass(frozen=True)
class Beta(_VarianceFamily):
    """``eta ~ Beta(alpha, gamma)``, ``eps = (α+γ) √((α+γ+1)/α) (eta - α/(α+γ))``."""

    alpha: float = 2.0

    @property
    def _scale(self) -> float:
        total = self.alpha + self.gamma
        return total * math.sqrt((total + 1) / self.alpha)

    @property
    def _largest(self) -> float:
        return self._scale

    def _draw(self, source: Source) -> Tensor:
        log_odds = source.log_gamma(self.alpha).sub_(source.log_gamma(self.gamma))
        total = self.alpha + self.gamma
        # eta - E[eta] = E[1 - eta] - (1 - eta): the smaller side keeps its digits.
        if self.gamma < self.alpha:
            centred = log_odds.neg_().sigmoid_().neg_().add_(self.gamma / total)
        else:
            centred = log_odds.sigmoid_().sub_(self.alpha / total)
        return centred.mul_(self._scale).to(source.dtype)


@dataclass(frozen=True)
class ChiSquare(_VarianceFamily):
    """``eta ~ Chi-square(gamma)``, ``eps = (eta - gamma)/√2``: gamma degrees of freedom."""

    @property
    def _largest(self) -> float:
        return 40 * max(2.0, self.std)

    def _draw(self, source: Source) -> Tensor:
        half = self.gamma / 2
        return source.log_gamma(half).exp_().sub_(half).mul_(math.sqrt(2)).to(source.dtype)


FAMILIES: Mapping[str, type[Family]] = {
    "gaussian": Gaussian,
    "bernoulli": Bernoulli,
    "gamma": Gamma,
    "gumbel": Gumbel,
    "laplace": Laplace,
    "logistic": Logistic,
    "beta": Beta,
    "chi-square": ChiSquare,
}


def validate(noise: object) -> Noise:
    """Return ``noise`` if it is one, else raise. A noise of one's own must be centred.

    A trial draw checks that; it never touches the global random stream.
    """
    checked = require_noise(noise)
    if not isinstance(checked, Family):  # the families are centred by construction
        probe(checked)
    return checked
