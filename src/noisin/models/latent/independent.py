r"""The simpler stochastic RNN of a re-examination (Dai, Lai, Yang and Niu, 2019).

.. math::

    d_t &= f(d_{t-1}, φ(u_t)), \quad p(z_t) = N(d_t), \quad q(z_t) = N(b_t, d_t) \\
    h_t &= g(h_{t-1}, d_t, z_t), \quad x_t \sim p(h_t)

where b_t has read all targets from t on. Given d, the latent variables are independent of each
other; a second recurrence h remembers them. All maps outside the recurrences are linear.
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
from noisin.models.latent.gaussian import GaussianNetwork
from noisin.models.latent.networks import Advance, Stack, StepStack, linear, reverse
from noisin.models.latent.walk import Inputs, LatentStep, StepFunction
from noisin.recurrent.injection import Injection


class IndependentSRNN(LatentModel):
    """A stochastic RNN whose latent variables are independent, given the recurrent state d.

    Noise is injected into d and into h.

    Args:
        size, likelihood, options: those of :class:`~noisin.models.latent.base.LatentModel`. The
            embeddings have ``mlp_size`` units; h has one layer.

    >>> from noisin.likelihoods import Bernoulli
    >>> model = IndependentSRNN(88, Bernoulli(), hidden_size=10, z_size=4, mlp_size=8)
    >>> x = torch.zeros(6, 2, 88)
    >>> model.log_prob(Batch(x[:-1], x[1:]))[0].shape
    torch.Size([5, 2])
    """

    def __init__(self, size: int, likelihood: Likelihood, **options: Any) -> None:
        super().__init__(size, likelihood, **options)
        M, H, Z = self.mlp_size, self.hidden_size, self.z_size
        self.embed_u = linear(self.input_size, M, self.generator)
        same = self.input_size == size
        self.embed_x = self.embed_u if same else linear(size, M, self.generator)
        sizes = [M, *self.layer_sizes]
        self.layers = Stack(self.cell, sizes, self._injection, self.dropouts)
        without_noise = Injection(layers=(), generator=self.generator)
        self.future = Stack(self.cell, [M, H], without_noise)
        self.prior = GaussianNetwork(H, Z, None, generator=self.generator)
        self.posterior = GaussianNetwork(2 * H, Z, None, generator=self.generator)
        last = self._injection.of_layer(self.num_layers - 1, self.num_layers)
        self.memory = StepStack(self.cell, [H + Z, H], last)
        self._emit_from(H, hidden=False)

    def context(self, batch: Batch, state: State) -> tuple[Inputs, State]:
        """d and b."""
        u, x = self._embedded(batch)
        d, state = self.layers(u, state)
        b, _ = self.future(reverse(x, batch.scored))
        return (d, reverse(b, batch.scored)), state

    def prior_context(self, x: Tensor, state: State) -> tuple[Inputs, State]:
        """d alone."""
        d, state = self.layers(self._embedded_inputs(x), state)
        return (d, None), state

    def initial(self, like: Tensor) -> State:  # noqa: ARG002
        """The state of h: zeros."""
        return None

    def sequence(self) -> StepFunction:
        """The steps of z and h."""
        return partial(self._step, self.memory.sequence())

    def _step(
        self, advance: Advance, inputs: Inputs, state: State, eta: Tensor
    ) -> tuple[LatentStep, State]:
        d, b = inputs
        p = self.prior(d)
        q = p if b is None else self.posterior(b, d)
        z = q.at(eta)
        h, state = advance(torch.cat([d, z], -1), state)
        return LatentStep(z, q, p, h), state
