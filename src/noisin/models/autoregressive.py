r"""A head whose outputs depend on each other: the values of a frame are predicted one by one.

.. math::

    p(x_t | z_t) = \prod_i p(x_{t,i} | x_{t,<i}, z_t), \qquad
    s_i = z V_i + b_i + \sum_k W_{ik} \, \mathrm{relu}\Big(z U_k + c_k + \sum_j M_{kj} x_j\Big)

Hidden unit k reads the values j ≤ m(k) alone and is read by the values i > m(k) alone (MADE,
Germain, Gregor, Murray and Larochelle, 2015), so that all conditionals of a frame are computed at
once. The units are spread evenly over ``m = 1, ..., O - 1``.

A latent variable makes the values of a frame dependent too. This head does so without one: it is
the baseline that shows how much of the gain of a stochastic RNN comes from its latent variable.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from noisin._util import arguments
from noisin.data.batch import Batch
from noisin.errors import Unsupported
from noisin.likelihoods import Likelihood
from noisin.likelihoods.base import require_likelihood
from noisin.models.base import State, mean_over_scored
from noisin.models.heads import Dense


class Autoregressive(nn.Module):
    """Predicts each value of a frame from z and from the values before it.

    Args:
        in_features: the size of z.
        out_features: the number of values of a frame.
        likelihood: the likelihood of each value, given its natural parameter.
        hidden: the number of hidden units.
        bias: the initial bias, ``(out_features,)``; zeros by default.
        generator: the random stream of the initialisation.

    It begins as the linear head with the same weights: those that read hidden units start at zero.

    >>> from noisin.likelihoods import Bernoulli
    >>> head = Autoregressive(4, 3, Bernoulli(), hidden=6)
    >>> frames = torch.ones(5, 2, 3)
    >>> head.nll(torch.zeros(5, 2, 4), Batch(frames, frames))[0].shape
    torch.Size([5, 2])
    """

    reads: Tensor
    is_read: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        likelihood: Likelihood,
        bias: Tensor | None = None,
        hidden: int = 128,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        arguments.whole("Autoregressive: out_features", out_features, 2)
        arguments.whole("Autoregressive: hidden", hidden)
        require_likelihood("Autoregressive", likelihood)
        if likelihood.event_dim:
            raise Unsupported(
                f"Autoregressive: predicts the values of a frame one by one, and a target of "
                f"{type(likelihood).__name__} is one value. Use a linear head."
            )
        self.likelihood = likelihood
        self.linear = Dense(in_features, out_features, likelihood, bias, generator)
        self.hidden = nn.utils.skip_init(nn.Linear, in_features, hidden)  # type: ignore[no-untyped-call]
        self.weight_in = nn.Parameter(torch.empty(hidden, out_features))
        self.weight_out = nn.Parameter(torch.zeros(out_features, hidden))
        last = torch.arange(hidden) * (out_features - 1) // hidden + 1  # m(k)
        place = torch.arange(1, out_features + 1)
        self.register_buffer("reads", place <= last.unsqueeze(1), persistent=False)
        self.register_buffer("is_read", place.unsqueeze(1) > last, persistent=False)
        self.reset_parameters(generator)

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Initialise the hidden layer uniformly on ±1/√(H + O), its bias and its output to zero."""
        bound = (self.hidden.in_features + self.weight_in.shape[1]) ** -0.5
        with torch.no_grad():
            for weight in (self.hidden.weight, self.weight_in):
                weight.uniform_(-bound, bound, generator=generator)
            self.hidden.bias.zero_()
            self.weight_out.zero_()

    def parameters_of(self, z: Tensor, x: Tensor) -> Tensor:
        """The natural parameter of each value, given z and the values of x before it."""
        values = F.linear(x.to(z.dtype), self.weight_in * self.reads)
        hidden = F.relu(self.hidden(z) + values)
        return self.linear.predict(z) + F.linear(hidden, self.weight_out * self.is_read)

    def nll(self, z: Tensor, batch: Batch, memory: State = None) -> tuple[Tensor, State]:  # noqa: ARG002
        """``-log p`` of each frame, ``(T, N)``."""
        s = self.parameters_of(z, batch.target)
        return self.likelihood.nll(s=s, x=batch.target).sum(-1), None

    def mean_nll(self, z: Tensor, batch: Batch, memory: State = None) -> tuple[Tensor, State]:
        """The mean over the scored frames."""
        return mean_over_scored(self.nll(z, batch, memory)[0], batch), None

    def sample(self, z: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw frames ``(..., O)``, one value after the other."""
        x = z.new_zeros(*z.shape[:-1], self.weight_out.shape[0])
        for i in range(x.shape[-1]):
            s = self.parameters_of(z, x)[..., i]
            x[..., i] = self.likelihood.sample(s, generator=generator)
        return x

    def predict(self, z: Tensor, memory: State = None) -> Tensor:  # noqa: ARG002
        """Not defined: the natural parameters of a frame depend on its values."""
        raise Unsupported(
            "Autoregressive: the prediction of a value depends on the values before it in the "
            "frame. Use sample(z), or nll(z, batch)."
        )
