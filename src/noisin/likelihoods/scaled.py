r"""Likelihoods whose scale is learnt: several parameters for each observation.

The last dimension of s has P parameters for each of O observations, one after another: first all
locations, then what the scales ``σ = softplus(r) + 1e-3`` are computed from, and so on.

=====================  =  ======================================================================
likelihood             P  density of x
=====================  =  ======================================================================
``ScaledGaussian()``   2  ``N(μ, σ²)``
``StudentT()``         3  ``μ + σ t_ν`` with ``ν = 2 + softplus(q)`` degrees of freedom
=====================  =  ======================================================================

These are *not* families in the sense of the paper's Table 1, whose natural parameter is linear in
the state and whose log-normaliser gives the regularizer of noise. The Gaussian of unknown variance
is an exponential family, but in other parameters, ``(μ/σ², -1/(2σ²))``, which are not all real
numbers; Student's t is none at all. They have ``nll``, ``mean`` and ``sample``, which is all that
training with sampled noise needs, and neither ``A`` nor ``T``: the penalty of noise in closed form
does not exist for them.

σ has a lower bound because the density of a value that the data repeats exactly, such as a sensor
that stands still, would otherwise grow without limit. Scale the data so that its standard deviation
is near 1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from noisin._util import checks, torch_state
from noisin.errors import InvalidType, InvalidValue
from noisin.likelihoods.base import wide

SMALLEST_SCALE = 1e-3


class LocationScale(ABC):
    """A density of real numbers with P parameters each: location, scale and what follows.

    ``start`` is what the parameters are initially, after the location: those of σ = 1.
    """

    parameters: ClassVar[int]
    start: ClassVar[tuple[float, ...]]

    @abstractmethod
    def nll(self, s: Tensor, x: Tensor) -> Tensor:
        """``-log p(x | s)``, one value for each x, for s of shape ``(..., P·O)``."""

    @abstractmethod
    def sample(self, s: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw one x for each observation, ``(..., O)``, without gradient."""

    def mean(self, s: Tensor) -> Tensor:
        """``E[x] = μ``, ``(..., O)``."""
        return self._split(s)[0]

    def _split(self, s: Tensor) -> tuple[Tensor, ...]:
        checks.require_real(self._name, s=s)
        if s.dim() == 0 or s.shape[-1] == 0 or s.shape[-1] % self.parameters:
            raise InvalidValue(
                f"{self._name}: expected {self.parameters} parameters for each observation in the "
                f"last dimension of s, got s of shape {tuple(s.shape)}."
            )
        return wide(s).chunk(self.parameters, -1)

    def _checked(self, s: Tensor, x: Tensor) -> Tensor:
        """The observations in the dtype of the result."""
        checks.require_tensors(self._name, s=s, x=x)
        checks.require_numbers(self._name, x=x)
        checks.require_one_device(self._name, s=s, x=x)
        expected = (*s.shape[:-1], s.shape[-1] // self.parameters)
        if x.shape != expected:
            raise InvalidValue(
                f"{self._name}: s of shape {tuple(s.shape)} describes x of shape {expected}, got "
                f"{tuple(x.shape)}. Reshape or expand x."
            )
        if torch_state.values_known(x) and not x.isfinite().all():
            raise InvalidValue(
                f"{self._name}: x must be a finite number, got {x[~x.isfinite()][0].item()}. "
                f"Leave such steps out: Batch(..., scored=scored)."
            )
        return x.to(wide(s).dtype)

    @property
    def _name(self) -> str:
        return f"likelihoods.{type(self).__name__}"


def _scale(r: Tensor) -> Tensor:
    return F.softplus(r) + SMALLEST_SCALE


_UNIT = math.log(math.expm1(1 - SMALLEST_SCALE))  # softplus of it is 1 - SMALLEST_SCALE


@final
@dataclass(frozen=True)
class ScaledGaussian(LocationScale):
    """Real-valued data of unknown variance: ``x ~ N(μ, σ²)``.

    >>> s = torch.tensor([0.0, _UNIT])  # μ = 0, σ = 1
    >>> ScaledGaussian().nll(s, torch.tensor([0.0]))
    tensor([0.9189])
    """

    parameters = 2
    start = (_UNIT,)

    def nll(self, s: Tensor, x: Tensor) -> Tensor:
        """``(x - μ)² / (2σ²) + log σ + log(2π) / 2``."""
        mu, r = self._split(s)
        sigma, x = _scale(r), self._checked(s, x)
        return ((x - mu) / sigma).square() / 2 + sigma.log() + 0.5 * math.log(2 * math.pi)

    def sample(self, s: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw real numbers, in the dtype of s."""
        mu, r = (part.detach() for part in self._split(s))
        checks.require_generator(self._name, generator, s.device)
        noise = torch.randn(mu.shape, dtype=mu.dtype, device=mu.device, generator=generator)
        return (mu + _scale(r) * noise).to(s.dtype)


@final
@dataclass(frozen=True)
class StudentT(LocationScale):
    """Real-valued data with outliers: ``x = μ + σ t``, where t has Student's law.

    Its ν > 2 degrees of freedom are learnt too: the mean is μ and the variance ``σ² ν / (ν - 2)``.

    >>> s = torch.tensor([0.0, _UNIT, -100.0])  # μ = 0, σ = 1, ν = 2
    >>> StudentT().nll(s, torch.tensor([0.0])).exp()  # 2 √2
    tensor([2.8284])
    """

    parameters = 3
    start = (_UNIT, 6.0)

    def nll(self, s: Tensor, x: Tensor) -> Tensor:
        """``log σ + log B(ν/2, ½) + log(ν) / 2 + (ν + 1)/2 log(1 + ((x - μ)/σ)² / ν)``."""
        mu, r, q = self._split(s)
        sigma, nu, x = _scale(r), 2 + F.softplus(q), self._checked(s, x)
        half = nu / 2
        beta = torch.lgamma(half) - torch.lgamma(half + 0.5) + 0.5 * math.log(math.pi)
        deviation = torch.log1p(((x - mu) / sigma).square() / nu)
        return sigma.log() + beta + nu.log() / 2 + (half + 0.5) * deviation

    def sample(self, s: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw real numbers, in the dtype of s: a normal one over the root of a Gamma's."""
        mu, r, q = (part.detach() for part in self._split(s))
        checks.require_generator(self._name, generator, s.device)
        half = 1 + F.softplus(q) / 2
        noise = torch.randn(mu.shape, dtype=mu.dtype, device=mu.device, generator=generator)
        chance = torch._standard_gamma(half, generator=generator) / half  # chi-square over nu
        return (mu + _scale(r) * noise / chance.sqrt()).to(s.dtype)


SCALED: Mapping[str, type[LocationScale]] = {
    "scaled-gaussian": ScaledGaussian,
    "student-t": StudentT,
}


def require_scaled(where: str, likelihood: object) -> None:
    """Raise unless ``likelihood`` is one of a learnt scale."""
    if not isinstance(likelihood, LocationScale):
        raise InvalidType(
            f"{where}: expected a likelihood with a learnt scale, got {likelihood!r:.60}. Pass an "
            f"instance, such as likelihoods.ScaledGaussian()."
        )
