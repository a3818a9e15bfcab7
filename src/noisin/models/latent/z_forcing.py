r"""Z-forcing (Goyal, Sordoni, Côté, Ke and Bengio, 2017).

.. math::

    p(z_t) = N(h_{t-1}), \quad q(z_t) = N(h_{t-1}, b_t), \quad
    h_t = f(h_{t-1}, φ(u_t), z_t), \quad x_t \sim p(h_t)

where b_t has read all targets from t on. Two terms make z carry what b knows of the future: the
``auxiliary`` cost, ``-log N(b_t; tanh μ(z_t), σ(z_t))``, whose gradient does not reach b, and the
``backward`` cost, the nll of the input ``u_t`` under a prediction from b_t, which trains b.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from noisin._util import arguments
from noisin.data.batch import Batch
from noisin.errors import InvalidValue
from noisin.likelihoods import Likelihood
from noisin.models.base import State, mean_over_scored
from noisin.models.heads import Dense
from noisin.models.latent.base import Bound, LatentModel
from noisin.models.latent.gaussian import GaussianNetwork
from noisin.models.latent.networks import Advance, Stack, StepStack, reverse
from noisin.models.latent.walk import Inputs, LatentStep, StepFunction
from noisin.recurrent.injection import Injection


class ZForcing(LatentModel):
    """Z-forcing.

    Args:
        auxiliary: the weight of the auxiliary cost.
        backward: the weight of the backward cost, which needs inputs that are observations.
        size, likelihood, options: those of :class:`~noisin.models.latent.base.LatentModel`.

    >>> from noisin.likelihoods import Bernoulli
    >>> model = ZForcing(88, Bernoulli(), hidden_size=10, z_size=4, mlp_size=8, auxiliary=0.1)
    >>> x = torch.zeros(6, 2, 88)
    >>> sorted(model.loss(Batch(x[:-1], x[1:])).terms)
    ['auxiliary']
    """

    def __init__(
        self,
        size: int,
        likelihood: Likelihood,
        *,
        auxiliary: float = 0.0,
        backward: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(size, likelihood, **options)
        self.auxiliary = arguments.finite("ZForcing: auxiliary", auxiliary, least=0)
        self.backward = arguments.finite("ZForcing: backward", backward, least=0)
        if backward and self.input_size != size:
            raise InvalidValue(
                f"ZForcing: the backward cost predicts inputs as observations, and they have "
                f"{self.input_size} and {size} values. Use backward=0."
            )
        M, H, Z, generator = self.mlp_size, self.hidden_size, self.z_size, self.generator
        self.embed_u, self.embed_x = self._embeddings()
        sizes = [M + Z, *self.layer_sizes]
        self.layers = StepStack(self.cell, sizes, self._injection, self.dropouts)
        self.future = Stack(self.cell, [M, H], Injection(layers=(), generator=generator))
        self.prior = GaussianNetwork(H, Z, M, generator=generator)
        self.posterior = GaussianNetwork(2 * H, Z, M, generator=generator)
        self._emit_from(H)
        if auxiliary:
            self.of_future = GaussianNetwork(Z, H, M, generator=generator)
        if backward:
            self.before = Dense(H, size, likelihood, generator=generator)

    def context(self, batch: Batch, state: State) -> tuple[Inputs, State]:
        """The embedded inputs and b."""
        u, x = self._embedded(batch)
        b, _ = self.future(reverse(x, batch.scored))
        return (u, reverse(b, batch.scored)), state

    def initial(self, like: Tensor) -> State:
        """The state of the layers, and h = 0."""
        return None, like.new_zeros(len(like), self.hidden_size)

    def sequence(self) -> StepFunction:
        """The steps of z and h."""
        return partial(self._step, self.layers.sequence())

    def _step(
        self, advance: Advance, inputs: Inputs, state: State, eta: Tensor
    ) -> tuple[LatentStep, State]:
        (u, b), (layers, h) = inputs, state
        p = self.prior(h)
        q = p if b is None else self.posterior(h, b)
        z = q.at(eta)
        h, layers = advance(torch.cat([u, z], -1), layers)
        return LatentStep(z, q, p, h), (layers, h)

    def costs(self, batch: Batch, bound: Bound) -> Mapping[str, Tensor]:
        """The costs of positive weight."""
        found, b = {}, bound.inputs[1]
        if self.auxiliary:
            law = self.of_future(bound.steps.z)
            law = law._replace(mean=law.mean.tanh())
            cost = mean_over_scored(-law.log_prob(b.detach()), batch)
            found["auxiliary"] = self.auxiliary * cost
        if self.backward:
            nll, _ = self.before.nll(b, Batch(batch.x, batch.x, batch.scored))
            found["backward"] = self.backward * mean_over_scored(nll, batch)
        return found
