"""What the noise families of the paper's table have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Generator, Tensor

from noisin._util import checks
from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.noise import ranges
from noisin.noise.base import draws
from noisin.noise.variates import Variates

Law = tuple[Any, *tuple[float, ...]]  # a torch distribution and its parameters


@dataclass(frozen=True)
class Family(ABC):
    """One row of the paper's noise table: a law with spread ``gamma``.

    The meaning of gamma is given by the family's row in :mod:`noisin.noise.ranges`; the class
    defines how to draw, and the density.
    """

    gamma: float

    def __post_init__(self) -> None:
        family = self._row()
        for field in fields(self):
            if field.name in ranges.RANGES[family]:
                value = ranges.check(family, field.name, getattr(self, field.name))
                object.__setattr__(self, field.name, value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # what is loaded from a file is checked as what is constructed

    @classmethod
    def _row(cls) -> str:
        """The family's row in ``ranges.RANGES``: its own, or that of the family it derives from."""
        for base in cls.__mro__:
            if base.__name__ in ranges.RANGES:
                return base.__name__
        raise InvalidType(
            f"noise.{cls.__name__}: a Family has a row in noise/ranges.py, and this class has "
            f"none. A custom noise is a frozen dataclass with variance and sample instead."
        )

    @property
    def std(self) -> float:
        """The standard deviation, by which families compare."""
        return ranges.spread(self._row()).std(self.gamma)

    @property
    def variance(self) -> float:
        """``Var(eps)``."""
        return ranges.spread(self._row()).variance(self.gamma)

    @abstractmethod
    def _draw(self, source: Variates) -> Tensor: ...

    @property
    def _eta(self) -> Law | None:
        """The standard law, if it has a density: a torch distribution and its parameters."""
        return None

    @property
    def exponential_moments(self) -> tuple[float, float]:
        """The open interval of t for which ``E[exp(t eps)]`` is finite."""
        return -math.inf, math.inf

    @property
    def _largest(self) -> float:
        """A size that draws do not exceed in practice (all tails are exponential or lighter)."""
        return 40 * self.std

    @classmethod
    def from_variance(cls, variance: float, **alpha: float) -> Self:
        """The member of the family with this variance (``alpha`` where the family has one).

        >>> from noisin.noise import Bernoulli, Beta, Gumbel
        >>> Bernoulli.from_variance(1.5), Gumbel.from_variance(1.44), Beta.from_variance(1.07)
        (Bernoulli(gamma=0.4), Gumbel(gamma=1.2), Beta(gamma=1.07, alpha=2.0))
        """
        variance = ranges.check_variance(cls.__name__, variance)
        return cls(ranges.spread(cls._row()).gamma(variance), **alpha)

    def sample(
        self, shape: Sequence[int], *, like: Tensor, generator: Generator | None = None
    ) -> Tensor:
        """Draw ``eps`` of this shape, in the dtype and on the device of ``like``.

        >>> from noisin.noise import Bernoulli
        >>> g = torch.Generator().manual_seed(1111)
        >>> Bernoulli(0.5).sample((6,), like=torch.zeros(()), generator=g)
        tensor([ 1., -1., -1.,  1., -1., -1.])
        """
        name = f"noise.{type(self).__name__}"
        shape = draws(name, shape, like, generator)
        if self.std == 0:
            return torch.zeros(shape, dtype=like.dtype, device=like.device)
        limit = torch.finfo(like.dtype).max
        if self._largest > limit:
            raise InvalidValue(
                f"{name}: {self} draws values near {self._largest:.3g} and "
                f"{like.dtype} ends at {limit:.3g}. Use less noise or a wider dtype."
            )
        # Half precision is too coarse to draw in.
        wide = torch.promote_types(like.dtype, torch.float32)
        eps = self._draw(Variates(shape, wide, like.device, generator))
        return eps if wide == like.dtype else eps.clamp(-limit, limit).to(like.dtype)

    def log_prob(self, eps: Tensor) -> Tensor:
        """The log density of ``eps``, entry by entry.

        With ``eps = (eta - E[eta]) / r``, where r is the ratio of the standard deviations, it is
        that of eta plus ``log r``.

        >>> from noisin.noise import Laplace
        >>> Laplace(1.0).log_prob(torch.tensor([0.0, 1.0]))
        tensor([-0.3466, -1.7608])
        """
        checks.require_real(f"noise.{type(self).__name__}", eps=eps)
        law = self._eta if self.std > 0 else None
        if law is None:
            raise Unsupported(
                f"noise.{type(self).__name__}: {self} has no density: it is discrete or constant. "
                f"Use a continuous noise, such as Gaussian.from_variance({self.variance:g})."
            )
        make, *parameters = law
        wide = torch.float32 if eps.device.type == "mps" else torch.float64
        eta = make(
            *(torch.tensor(p, dtype=wide, device=eps.device) for p in parameters),
            validate_args=False,
        )
        ratio = eta.stddev / self.std
        value = eps * ratio + eta.mean
        inside = eta.support.check(value)
        density = eta.log_prob(torch.where(inside, value, eta.mean)) + ratio.log()
        return torch.where(inside, density, -math.inf).to(eps.dtype)
