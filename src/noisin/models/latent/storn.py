r"""The stochastic recurrent network, STORN (Bayer and Osendorfer, 2014).

.. math::

    p(z_t) = N(0, I), \quad h_t = f(h_{t-1}, φ(u_t), z_t), \quad x_t \sim p(h_t) \\
    r_t = g(r_{t-1}, φ(x_t)), \quad q(z_t) = N(r_t)

The recognition network reads the target of its own step, as ports of the model do; the original
one reads the target before.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from noisin.data.batch import Batch
from noisin.likelihoods import Likelihood
from noisin.models.base import State
from noisin.models.latent.base import LatentModel
from noisin.models.latent.gaussian import DiagonalGaussian, GaussianNetwork
from noisin.models.latent.networks import Advance, Stack, StepStack
from noisin.models.latent.walk import Inputs, LatentStep, StepFunction
from noisin.recurrent.injection import Injection


class STORN(LatentModel):
    """The stochastic recurrent network.

    Args:
        size, likelihood, options: those of :class:`~noisin.models.latent.base.LatentModel`.

    >>> from noisin.likelihoods import Poisson
    >>> model = STORN(3, Poisson(), hidden_size=10, z_size=4, mlp_size=8)
    >>> x = torch.zeros(6, 2, 3)
    >>> model.log_prob(Batch(x[:-1], x[1:]))[0].shape
    torch.Size([5, 2])
    """

    def __init__(self, size: int, likelihood: Likelihood, **options: Any) -> None:
        super().__init__(size, likelihood, **options)
        M, H = self.mlp_size, self.hidden_size
        self.embed_u, self.embed_x = self._embeddings()
        sizes = [M + self.z_size, *self.layer_sizes]
        self.layers = StepStack(self.cell, sizes, self._injection, self.dropouts)
        without_noise = Injection(layers=(), generator=self.generator)
        self.recognition = Stack(self.cell, [M, H], without_noise)
        self.posterior = GaussianNetwork(H, self.z_size, None, generator=self.generator)
        self._emit_from(H)

    def context(self, batch: Batch, state: State) -> tuple[Inputs, State]:
        """The embedded inputs, and the state r of the recognition network."""
        u, x = self._embedded(batch)
        r, state = self.recognition(x, state)
        return (u, r), state

    def initial(self, like: Tensor) -> State:  # noqa: ARG002
        """The state of the layers: zeros."""
        return None

    def sequence(self) -> StepFunction:
        """The steps of z and h."""
        return partial(self._step, self.layers.sequence())

    def _step(
        self, advance: Advance, inputs: Inputs, state: State, eta: Tensor
    ) -> tuple[LatentStep, State]:
        u, r = inputs
        p = DiagonalGaussian.standard(eta)
        q = p if r is None else self.posterior(r)
        z = q.at(eta)
        h, state = advance(torch.cat([u, z], -1), state)
        return LatentStep(z, q, p, h), state
