r"""The regularizer as the paper prints it, for any noise-injected model, fed back or not.

.. math:: Reg = \tfrac12 \sum_t \mathrm{tr}\, E_{\epsilon_{1:t-1}}
          [\mathrm{Cov}(B^\top z_t \mid z_{t-1})], \qquad B = V \sqrt{\nabla^2 A(V^\top h_t)},

with h the states of the clean RNN. With :math:`s = V^\top z` the trace is that of
:math:`\nabla^2 A(V^\top h_t)\, \mathrm{Cov}(s_t \mid z_{t-1})`, and two independent draws s and s'
of the next step from one and the same past give it without bias:

.. math:: Reg = \tfrac14 \sum_t E[(s_t - s_t')^\top \nabla^2 A(V^\top h_t) (s_t - s_t')].

Where noise is not fed back, this is the closed form of :mod:`noisin.analysis.regularizer`. Where it
is, this counts only the noise of step t in z_t. What the noise of earlier steps does to z_t by way
of z_{t-1} is left out, while :func:`~noisin.analysis.expected_kl`, what noise really adds to the
risk on the model's own data, and its second-order term,
:func:`~noisin.analysis.fisher_penalty`, count it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from noisin import objective
from noisin._util import checks
from noisin.analysis.risk import Measured
from noisin.errors import InvalidValue
from noisin.likelihoods import Likelihood
from noisin.recurrent.injection import Injected, as_training
from noisin.recurrent.modules import GRU


def printed_regularizer(
    model: nn.Module,
    x: Tensor,
    K: int = 64,
    state: Any = None,
    likelihood: Likelihood | None = None,
) -> Measured:
    """``½ Σ_t tr E[Cov(Bᵀ z_t | z_{t-1})]``, summed over rows and steps, from K noisy pasts.

    Args:
        model: ``model(x, state) -> (s, state)``, time first. It is run step by step, so its noise
            must be fresh at every step and its state must be all that it remembers.
        x: the inputs, ``(T, N, ...)``.
        K: the number of noisy pasts, each continued twice.
        state: the initial state.
        likelihood: that of the targets; ``model.likelihood`` unless given.

    >>> import noisin
    >>> from noisin import likelihoods, noise
    >>> rnn = noisin.RNN(1, 2, noise=noise.Gaussian(0.5), mode="additive")
    >>> reg = printed_regularizer(rnn, torch.ones(3, 1, 1), 4000, likelihood=likelihoods.Gaussian())
    >>> bool((reg.value - 0.75).abs() < 6 * reg.stderr)        # ½ · 0.5² · 2 units · 3 steps
    True
    """
    checks.require_module("printed_regularizer", model)
    checks.require_model("printed_regularizer", model)
    _check_steps(model)
    likelihood = objective.likelihood_of(model, likelihood)
    with torch.no_grad():
        with as_training(model, False):
            s_h, _ = checks.model_output("printed_regularizer", model(x, state))
        total: Tensor | float = 0.0
        for t in range(len(x)):
            twin, other = (
                objective.predict(model, x[t : t + 1], K, state, likelihood) for _ in range(2)
            )
            gap = (twin.s - other.s).double()
            curvature = likelihood.hessian(s_h[t : t + 1].double().expand_as(gap))
            total = total + (gap * curvature(gap)).flatten(1).sum(1) / 4
            state = twin.state
    assert isinstance(total, Tensor)
    return Measured.of(total)


def _check_steps(model: nn.Module) -> None:
    """Raise unless a sequence can be run step by step."""
    for module in model.modules():
        noisy = isinstance(module, Injected) and module.noise is not None
        if isinstance(module, nn.RNNBase) and module.bidirectional:
            reason, advice = "both directions", "Use one direction"
        elif noisy and module.share == "sequence":
            reason, advice = "noise shared over time", "Use share='step'"
        elif noisy and module.feedback and isinstance(module, GRU) and module.site == "read":
            reason, advice = "a state without its noisy z", "Use site='state' or an LSTM"
        else:
            continue
        raise InvalidValue(
            f"printed_regularizer: {type(module).__name__} has {reason}, and the model is run step "
            f"by step from its state. {advice}."
        )
