r"""The variational RNN (Chung, Kastner, Dinh, Goel, Courville and Bengio, 2015).

.. math::

    h_t &= f(h_{t-1}, φ(u_t), ψ(z_{t-1})) \\
    p(z_t) &= N(h_t), \quad q(z_t) = N(φ(x_t), h_t), \quad x_t \sim p(ψ(z_t), h_t)

The paper's ``h_{t-1}`` is our ``h_t``: here it is computed at the beginning of the step, so that
the first prediction reads the first input too, and inputs need not be the targets before them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noisin._util import arguments, checks
from noisin.data.batch import Batch
from noisin.likelihoods import Likelihood
from noisin.models.base import State
from noisin.models.latent.base import LatentModel
from noisin.models.latent.gaussian import GaussianNetwork, JointNetworks, drawn, laws_of
from noisin.models.latent.lstm_chain import Functions, Operands, lstm_chain
from noisin.models.latent.networks import Advance, StepStack, dense
from noisin.models.latent.walk import Inputs, LatentStep, StepFunction
from noisin.recurrent import drop_ins
from noisin.recurrent.cells import LSTMCell
from noisin.recurrent.samples import is_plain


class VRNN(LatentModel):
    """The variational RNN.

    Args:
        res_q: whether the posterior's network computes the difference of its mean to the prior's
            (as the VRNN of Maddison et al., 2017, does).
        size, likelihood, options: those of :class:`~noisin.models.latent.base.LatentModel`.

    >>> from noisin.likelihoods import Bernoulli
    >>> model = VRNN(88, Bernoulli(), hidden_size=10, z_size=4, mlp_size=8)
    >>> x = torch.zeros(6, 2, 88)
    >>> model.log_prob(Batch(x[:-1], x[1:]))[0].shape
    torch.Size([5, 2])
    """

    def __init__(
        self, size: int, likelihood: Likelihood, *, res_q: bool = False, **options: Any
    ) -> None:
        super().__init__(size, likelihood, **options)
        arguments.boolean("VRNN: res_q", res_q)
        self.res_q, M, H = res_q, self.mlp_size, self.hidden_size
        self.embed_u, self.embed_x = self._embeddings()
        self.embed_z = dense(self.z_size, [M], generator=self.generator)
        self.layers = StepStack(
            self.cell, [2 * M, *self.layer_sizes], self._injection, self.dropouts
        )
        self.prior = GaussianNetwork(H, self.z_size, M, generator=self.generator)
        self.posterior = GaussianNetwork(M + H, self.z_size, M, generator=self.generator)
        self._emit_from(M + H)

    def context(self, batch: Batch, state: State) -> tuple[Inputs, State]:
        """The embedded inputs, and what prior and posterior make of the embedded targets."""
        u, x = self._embedded(batch)
        return (u, self._laws.known(u[..., :0], x)), state

    def prior_context(self, x: Tensor, state: State) -> tuple[Inputs, State]:
        """The same of the prior alone, which does not read targets."""
        u = self._embedded_inputs(x)
        return (u, self._laws.known(u[..., :0])), state

    def initial(self, like: Tensor) -> State:
        """The state of the layers, and the embedding of z = 0."""
        return None, self.embed_z(like.new_zeros(len(like), self.z_size))

    def sequence(self) -> StepFunction:
        """The steps of h and z."""
        return partial(self._step, self.layers.sequence(), self._laws)

    def steps(self, inputs: Inputs, state: State, eta: Tensor) -> tuple[LatentStep, State]:
        """All steps: with one LSTM layer at once, by :func:`.lstm_chain`, else one by one."""
        cell = self.layers.only_lstm()
        if cell is None or not self._steps_as(VRNN) or not self._embeds_plainly():
            return super().steps(inputs, state, eta)
        (u, known), (layers, psi), M, laws = inputs, state, self.mlp_size, self._laws
        embed, V_W_b = cast(nn.Linear, self.embed_z[0]), laws.matrices(known)
        zeros = u.new_zeros(*eta.shape[:2], self.hidden_size)
        h, c = (zeros[0], zeros[0]) if layers is None else layers[0]
        checks.require_one_kind("VRNN", inputs=u, h=h, c=c)
        drop_ins.state_shapes("VRNN", tuple(zeros.shape[1:]), h, c)
        a = F.linear(u, cell.weight_ih[:, :M], cell.bias_ih + cell.bias_hh)
        A = torch.cat([cell.weight_ih[:, M:], cell.weight_hh], 1).t()
        functions, eps = Functions(laws.activation, self._drawn_by_outputs), None
        if isinstance(cell, LSTMCell) and cell._noise_acts():
            functions = functions._replace(mode=cell.noise_mode, feedback=cell.feedback)
            eps = cell._drawn_at_once(zeros)
        steps = lstm_chain(
            Operands(a, known, eta, eps, psi, h, c, A, *V_W_b, embed.weight.t(), embed.bias),
            functions,
        )
        z, q, p = drawn(laws_of(steps.o), eta, self.res_q)
        found = LatentStep(z, q, p, torch.cat([steps.psi, steps.h], -1))
        return found, (((steps.last_h, steps.last_c),), steps.psi[-1])

    def _embeds_plainly(self) -> bool:
        """Whether ψ is an activation of a linear map of z, and nothing hooks into it."""
        embed, activation = self.embed_z, self._laws.activation
        if type(embed) is not nn.Sequential:
            return False
        same = [type(part) for part in embed] == [nn.Linear, type(activation)]
        return same and embed[0].bias is not None and all(map(is_plain, embed.modules()))

    def _drawn_by_outputs(self, o: Tensor, eta: Tensor) -> Tensor:
        return drawn(laws_of(o), eta, self.res_q)[0]

    @property
    def _laws(self) -> JointNetworks:
        return JointNetworks([self.prior, self.posterior], self.hidden_size)

    def _step(
        self, advance: Advance, laws: JointNetworks, inputs: Inputs, state: State, eta: Tensor
    ) -> tuple[LatentStep, State]:
        (u, known), (layers, before) = inputs, state
        h, layers = advance(torch.cat([u, before], -1), layers)
        z, q, p = drawn(laws(known, h), eta, self.res_q)
        after = self.embed_z(z)
        return LatentStep(z, q, p, torch.cat([after, h], -1)), (layers, after)
