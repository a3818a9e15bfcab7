r"""Gaussians with a diagonal covariance: the prior and the posterior of a latent variable.

.. math::

    KL(q ‖ p) = \sum_i \log\frac{σ_{p,i}}{σ_{q,i}}
                + \frac{σ_{q,i}^2 + (μ_{q,i} - μ_{p,i})^2}{2 σ_{p,i}^2} - \frac12
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, cast

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
        o = torch.cat([network(x) for network in self.networks], -1)
        return laws_of(o.view(*o.shape[:-1], 2, -1))[0]


class JointNetworks:
    """Networks that read one variable v at each step, as one network.

    What else they read is known of all steps, so that its products are computed before the loop, by
    :meth:`known`. In the loop, the products of all networks with v are one, and so are those of
    their second layers, whose matrix has the layers of the networks as its blocks.

    Args:
        networks: with hidden layers of one size; v is the last that each of them reads.
        v_size: the size of v.

    >>> networks = [GaussianNetwork(2, 3, 5), GaussianNetwork(6, 3, 5)]
    >>> joint, v, a = JointNetworks(networks, 2), torch.ones(7, 2), torch.ones(7, 4)
    >>> p, q = joint(joint.known(a[:, :0], a), v)
    >>> torch.allclose(p.mean, networks[0](v).mean), torch.allclose(q.std, networks[1](a, v).std)
    (True, True)
    """

    def __init__(self, networks: Sequence[GaussianNetwork], v_size: int) -> None:
        self.count, self.v_size = len(networks), v_size
        parts = [cast(nn.Sequential, part) for network in networks for part in network.networks]
        self.first = [cast(nn.Linear, part[0]) for part in parts]
        self.second = [cast(nn.Linear, part[2]) for part in parts]
        self.activation = parts[0][1]
        self.z_size = sum(layer.out_features for layer in self.second) // (2 * self.count)

    @cached_property
    def _matrices(self) -> tuple[Tensor, Tensor, Tensor]:
        """What a step needs and :meth:`known` does not: V, W and the bias of the second layers."""
        V = torch.cat([layer.weight[:, -self.v_size :] for layer in self.first]).t()
        W = torch.block_diag(*(layer.weight for layer in self.second)).t()  # type: ignore[no-untyped-call]
        return V, W, torch.cat([layer.bias for layer in self.second])

    def known(self, *inputs: Tensor) -> Tensor:
        """The part of the first layers that is known, of what each network reads before v.

        A network that reads v alone has an input of size zero. Fewer inputs than networks are those
        of the first ones.
        """
        each = len(self.first) // self.count
        read = [x for x in inputs for _ in range(each)]
        return torch.cat(
            [
                F.linear(x, layer.weight[:, : -self.v_size], layer.bias)
                for x, layer in zip(read, self.first, strict=False)
            ],
            -1,
        )

    def matrices(self, known: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """V, W and the bias of the networks that ``known`` is of."""
        V, W, bias = self._matrices
        if (width := known.shape[-1]) < len(W):  # of the first networks
            out = width * len(bias) // len(W)
            return V[:, :width], W[:width, :out], bias[:out]
        return V, W, bias

    def __call__(self, known: Tensor, v: Tensor) -> list[DiagonalGaussian]:
        """The Gaussians of the networks that ``known`` is of."""
        V, W, bias = self.matrices(known)
        hidden = self.activation(torch.addmm(known, v, V))
        return laws_of(torch.addmm(bias, hidden, W).view(len(v), -1, self.z_size))


def laws_of(o: Tensor) -> list[DiagonalGaussian]:
    """The Gaussians of networks whose outputs are ``(..., 2·count, Z)``: mean, s, mean, s, ..."""
    mean, s = o.view(*o.shape[:-2], -1, 2, o.shape[-1]).unbind(-2)
    std = F.softplus(s + OFFSET) + SMALLEST_STD
    return [DiagonalGaussian(*law) for law in zip(mean.unbind(-2), std.unbind(-2), strict=True)]


def drawn(
    laws: Sequence[DiagonalGaussian], eta: Tensor, relative: bool
) -> tuple[Tensor, DiagonalGaussian, DiagonalGaussian]:
    """z, its posterior and its prior, of which the latter is the first of the laws.

    Without another law z is drawn from the prior. Where it is ``relative``, the mean of the
    posterior is the difference to that of the prior.
    """
    p, *posterior = laws
    if not posterior:
        return p.at(eta), p, p
    q = posterior[0]
    q = q._replace(mean=p.mean + q.mean) if relative else q
    return q.at(eta), q, p
