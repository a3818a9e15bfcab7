r"""Gaussians with a diagonal covariance: the prior and the posterior of a latent variable.

.. math::

    KL(q ‖ p) = \sum_i \log\frac{σ_{p,i}}{σ_{q,i}}
                + \frac{σ_{q,i}^2 + (μ_{q,i} - μ_{p,i})^2}{2 σ_{p,i}^2} - \frac12
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from noisin.models.latent.networks import Activation, dense, linear

SMALLEST_STD = 1e-4  # keeps densities finite where a network wants a variance of zero
OFFSET = 0.5  # makes the standard deviation of an untrained network nearly one


class DiagonalGaussian(NamedTuple):
    """``N(mean, diag(std²))`` for each row; the last dimension is the variable's.

    >>> q = DiagonalGaussian(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 2.0]))
    >>> q.kl(DiagonalGaussian.standard(q.mean))
    tensor(1.3069)
    >>> q.kl(q)
    tensor(0.)
    """

    mean: Tensor
    std: Tensor

    @classmethod
    def standard(cls, like: Tensor) -> DiagonalGaussian:
        """``N(0, I)`` in the shape of a tensor."""
        return cls(torch.zeros_like(like), torch.ones_like(like))

    @classmethod
    def stack(cls, parts: Sequence[DiagonalGaussian]) -> DiagonalGaussian:
        """Those of all steps as one, ``(T, N, Z)``."""
        return cls(torch.stack([q.mean for q in parts]), torch.stack([q.std for q in parts]))

    def at(self, eta: Tensor) -> Tensor:
        """``mean + std · eta``: a draw, where eta is standard normal."""
        return torch.addcmul(self.mean, self.std, eta)

    def log_prob(self, z: Tensor) -> Tensor:
        """The log density of z, summed over the variable."""
        scaled = (z - self.mean) / self.std
        each = -0.5 * scaled.square() - self.std.log() - 0.5 * math.log(2 * math.pi)
        return each.sum(-1)

    def kl(self, p: DiagonalGaussian) -> Tensor:
        """``KL(self ‖ p)``, summed over the variable."""
        ratio = self.std / p.std
        distance = (self.mean - p.mean) / p.std
        return (0.5 * (ratio.square() + distance.square() - 1) - ratio.log()).sum(-1)


class GaussianNetwork(nn.Module):
    """A network whose output is a Gaussian: ``std = softplus(s + 0.5) + 1e-4``.

    Args:
        in_features: the size of what it reads.
        z_size: the size of the variable.
        hidden: units of its hidden layer; None for a linear map.
        separate: whether mean and standard deviation have a hidden layer each.
        activation: of the hidden layer.
        generator: the random stream of the initialisation.
    """

    def __init__(
        self,
        in_features: int,
        z_size: int,
        hidden: int | None,
        *,
        separate: bool = False,
        activation: Activation = "relu",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        size = in_features if hidden is None else hidden

        def network(out_features: int) -> nn.Sequential:
            sizes = [] if hidden is None else [hidden]
            before = dense(in_features, sizes, activation=activation, generator=generator)
            return before.append(linear(size, out_features, generator))

        sizes = [z_size, z_size] if separate else [2 * z_size]
        self.networks = nn.ModuleList(map(network, sizes))

    def forward(self, *inputs: Tensor) -> DiagonalGaussian:
        """The Gaussian of what is read, given in parts."""
        x = torch.cat(inputs, -1)
        mean, s = torch.cat([network(x) for network in self.networks], -1).chunk(2, -1)
        return DiagonalGaussian(mean, F.softplus(s + OFFSET) + SMALLEST_STD)
