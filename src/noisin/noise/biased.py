"""Noise that is biased on purpose, to find out what unbiasedness is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from noisin._util import arguments
from noisin.errors import InvalidValue
from noisin.noise.base import Noise, draws
from noisin.noise.families import validate
from noisin.noise.ranges import LARGEST_MEAN


@dataclass(frozen=True)
class Biased:
    r"""Multiplicative noise of another mean, ``z = h * mean * (1 + eps)``, for experiments.

    The coefficient of variation of the factor is the std of eps, whatever the mean. All other noise
    with a mean is refused: this class is how to ask for it.

    With ``rescaled``, the RNN is evaluated as it is on average in training: with the noise off,
    ``z = h * mean``. That is unbiased noise on an RNN whose weights on z are ``mean`` times as
    large. Otherwise ``z = h`` with the noise off, and training and evaluation differ by the bias.

    Attributes:
        noise: eps, which is centred.
        mean: ``E[z / h]``, above zero; 1 is unbiased.
        rescaled: whether the mean stays with the noise off.

    >>> from noisin.noise import Gaussian
    >>> biased = Biased(Gaussian(0.5), mean=0.8)
    >>> biased.std, biased.std / biased.mean
    (0.4, 0.5)
    >>> biased.at_rest.sample((2,), like=torch.zeros(()))  # z = 0.8 h
    tensor([-0.2000, -0.2000])
    """

    noise: Noise
    mean: float
    rescaled: bool = True

    def __post_init__(self) -> None:
        validate(self.noise)
        mean = arguments.finite("noise.Biased: mean", self.mean)
        if not 0 < mean <= LARGEST_MEAN:
            raise InvalidValue(
                f"noise.Biased: mean must be above 0 and at most {LARGEST_MEAN:g}, got {mean:g}. "
                f"It is E[z / h]: 1 is unbiased."
            )
        arguments.boolean("noise.Biased: rescaled", self.rescaled)

    @property
    def variance(self) -> float:
        """The variance of the factor: ``mean² Var(eps)``."""
        return self.mean**2 * self.noise.variance

    @property
    def std(self) -> float:
        """The standard deviation of the factor."""
        return self.mean * math.sqrt(self.noise.variance)

    @property
    def at_rest(self) -> Constant | None:
        """What is injected with the noise off; None for nothing."""
        return Constant(self.mean - 1) if self.rescaled else None

    def sample(
        self, shape: Sequence[int], *, like: Tensor, generator: Generator | None = None
    ) -> Tensor:
        """Draw ``mean (1 + eps) - 1``, of which the injection makes the factor."""
        eps = self.noise.sample(shape, like=like, generator=generator)
        return eps.mul_(self.mean).add_(self.mean - 1)


def at_rest(noise: object) -> Constant | None:
    """What a noise, or one per layer, leaves with the noise off; None for nothing."""
    return noise.at_rest if isinstance(noise, Biased) else None


@dataclass(frozen=True)
class Constant:
    """The same value everywhere."""

    value: float

    @property
    def variance(self) -> float:
        """0."""
        return 0.0

    def sample(
        self, shape: Sequence[int], *, like: Tensor, generator: Generator | None = None
    ) -> Tensor:
        """The value, in this shape."""
        shape = draws("noise.Constant", shape, like, generator)
        return torch.full(shape, self.value, dtype=like.dtype, device=like.device)


torch.serialization.add_safe_globals([Biased, Constant])
