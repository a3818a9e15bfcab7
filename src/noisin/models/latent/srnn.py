r"""The stochastic RNN (Fraccaro, Sønderby, Paquet and Winther, 2016).

.. math::

    d_t &= f(d_{t-1}, φ(u_t)), \quad p(z_t) = N(d_t, z_{t-1}), \quad x_t \sim p(d_t, z_t) \\
    a_t &= g(a_{t+1}, d_t, φ(x_t)), \quad q(z_t) = N(a_t, z_{t-1})

The recurrent state d does not depend on z, so it is computed for all steps at once. With
``smoothing``, a_t has read all targets from t on; otherwise, in filtering, it is a dense layer of
``d_t`` and ``x_t``. With ``res_q`` the posterior's network computes the difference of its mean to
the prior's, ``μ_q = μ_p + f(a_t, z_{t-1})``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from noisin._util import arguments
from noisin.data.batch import Batch
from noisin.likelihoods import Likelihood
from noisin.models.base import State
from noisin.models.latent.base import LatentModel
from noisin.models.latent.chain import chain
from noisin.models.latent.gaussian import (
    DiagonalGaussian,
    GaussianNetwork,
    JointNetworks,
    drawn,
    laws_of,
)
from noisin.models.latent.networks import Activation, Stack, dense, reverse
from noisin.models.latent.walk import Inputs, LatentStep, StepFunction
from noisin.recurrent.injection import Injection

ACTIVATION: Activation = "clipped-leaky-relu"


class SRNN(LatentModel):
    """The stochastic RNN, with the networks of its authors.

    Args:
        smoothing: whether the posterior reads the future.
        res_q: whether its mean is relative to the prior's.
        size, likelihood, options: those of :class:`~noisin.models.latent.base.LatentModel`.

    >>> from noisin.likelihoods import Bernoulli
    >>> model = SRNN(88, Bernoulli(), hidden_size=10, z_size=4, mlp_size=8, cell="gru")
    >>> x = torch.zeros(6, 2, 88)
    >>> model.log_prob(Batch(x[:-1], x[1:]))[0].shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        size: int,
        likelihood: Likelihood,
        *,
        smoothing: bool = True,
        res_q: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(size, likelihood, **options)
        arguments.boolean("SRNN: smoothing", smoothing)
        arguments.boolean("SRNN: res_q", res_q)
        self.smoothing, self.res_q = smoothing, res_q
        M, H, Z = self.mlp_size, self.hidden_size, self.z_size
        usual: dict[str, Any] = {"activation": ACTIVATION, "generator": self.generator}
        self.embed_u, self.embed_x = self._embeddings(layers=2, activation=ACTIVATION)
        sizes = [M, *self.layer_sizes]
        self.layers = Stack(self.cell, sizes, self._injection, self.dropouts)
        without_noise = Injection(layers=(), generator=self.generator)
        self.future: nn.Module = (
            Stack(self.cell, [H + M, H], without_noise) if smoothing else dense(H + M, [H], **usual)
        )
        self.prior = GaussianNetwork(H + Z, Z, M, separate=True, **usual)
        self.posterior = GaussianNetwork(H + Z, Z, M, separate=True, **usual)
        self._emit_from(H + Z, activation=ACTIVATION)

    def context(self, batch: Batch, state: State) -> tuple[Inputs, State]:
        """d, and what prior and posterior make of d and a."""
        u, x = self._embedded(batch)
        d, state = self.layers(u, state)
        both = torch.cat([d, x], -1)
        if self.smoothing:
            a, _ = self.future(reverse(both, batch.scored))
            a = reverse(a, batch.scored)
        else:
            a = self.future(both)
        return (d, self._laws.known(d, a)), state

    def prior_context(self, x: Tensor, state: State) -> tuple[Inputs, State]:
        """d, and what the prior makes of it."""
        d, state = self.layers(self._embedded_inputs(x), state)
        return (d, self._laws.known(d)), state

    def initial(self, like: Tensor) -> State:
        """z = 0."""
        return like.new_zeros(len(like), self.z_size)

    def sequence(self) -> StepFunction:
        """The steps of z."""
        return partial(self._step, self._laws)

    def steps(self, inputs: Inputs, state: State, eta: Tensor) -> tuple[LatentStep, State]:
        """All steps of z at once, by :func:`~noisin.models.latent.chain.chain`."""
        if not self._steps_as(SRNN):
            return super().steps(inputs, state, eta)
        d, known = inputs
        laws = self._laws
        o = chain(
            known, eta, state, *laws.matrices(known), f=laws.activation, g=self._drawn_by_outputs
        )
        found = self._drawn(d, laws_of(o), eta)
        return found, found.z[-1]

    @property
    def _laws(self) -> JointNetworks:
        return JointNetworks([self.prior, self.posterior], self.z_size)

    def _step(
        self, laws: JointNetworks, inputs: Inputs, state: State, eta: Tensor
    ) -> tuple[LatentStep, State]:
        d, known = inputs
        found = self._drawn(d, laws(known, state), eta)
        return found, found.z

    def _drawn(self, d: Tensor, laws: list[DiagonalGaussian], eta: Tensor) -> LatentStep:
        """z by the prior and, where there is one, the posterior; of one step or of all."""
        z, q, p = drawn(laws, eta, self.res_q)
        return LatentStep(z, q, p, torch.cat([d, z], -1))

    def _drawn_by_outputs(self, o: Tensor, eta: Tensor) -> Tensor:
        return self._drawn(eta[..., :0], laws_of(o), eta).z
