"""The regularizer as printed, against all masks of Bernoulli noise, one by one."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import noisin
from noisin import analysis, likelihoods, noise
from noisin.errors import InvalidType, InvalidValue

F, H, O, KEEP = 3, 2, 4, 0.6  # noqa: E741
D64: dict[str, Any] = {"dtype": torch.float64}


def gru(*args: Any, **settings: Any) -> noisin.GRU:
    """The literal equation, which warns of growth; the state of the other one lacks its z."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return noisin.GRU(*args, site="state", **settings)


class Model(nn.Module):
    def __init__(self, rnn: nn.Module, likelihood: likelihoods.Likelihood) -> None:
        super().__init__()
        self.rnn, self.likelihood = rnn, likelihood
        self.V = nn.Parameter(torch.randn(H, O, **D64))

    def forward(self, x: Tensor, state: Any = None, **eps: Tensor) -> tuple[Tensor, Any]:
        z, state = self.rnn(x, state, **eps)
        return z @ self.V, state


def strengthened(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(3)
    return module


def exact(model: Model, x: Tensor, layers: int) -> Tensor:
    """``½ Σ_t tr E[Cov(Bᵀ z_t | past)]``, with the past and the present summed over all masks."""
    T = len(x)
    bits = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * (T * layers * H)).double()
    p = (bits * math.log(KEEP) + (1 - bits) * math.log(1 - KEEP)).sum(1).exp()
    eps = (bits / KEEP - 1).view(-1, T, layers, H).permute(2, 1, 0, 3)
    with torch.no_grad():
        s, _ = model(x.expand(T, len(bits), F), eps=eps.contiguous())
        h = model.rnn.eval()(x)[0]
    total = torch.zeros((), **D64)
    for t in range(T):
        second = torch.func.jacrev(torch.func.jacrev(lambda s: model.likelihood.A(s).sum()))
        hessian = second((h[t, 0] @ model.V).detach())
        # Bits go from the first step to the last: of equal past are runs of equal length.
        pasts = 2 ** (t * layers * H)
        groups, weight = s[t].view(pasts, -1, O), p.view(pasts, -1)
        within = weight / weight.sum(1, keepdim=True)
        mean = torch.einsum("gk,gko->go", within, groups)
        off = groups - mean.unsqueeze(1)
        covariance = torch.einsum("gk,gko,gkp->gop", within, off, off)
        expected = torch.einsum("g,gop->op", weight.sum(1), covariance)
        total += 0.5 * torch.trace(hessian @ expected)
    return total


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize(
    ("cell", "layers", "T"), [(noisin.RNN, 1, 3), (noisin.LSTM, 2, 2), (gru, 1, 3)]
)
@pytest.mark.parametrize(
    "lik", [likelihoods.Categorical(), likelihoods.Gaussian(0.5), likelihoods.Bernoulli()], ids=str
)
def test_it_is_the_sum_over_all_masks(
    lik: Any, cell: Any, layers: int, T: int, feedback: bool
) -> None:
    rnn = cell(F, H, layers, noise=noise.Bernoulli(KEEP), feedback=feedback, **D64)
    model, x = Model(strengthened(rnn), lik), torch.randn(T, 1, F, **D64)
    expected = exact(model, x, layers)
    for training in (True, False):
        found = analysis.printed_regularizer(model.train(training), x, K=8000)
        assert abs(found.value - expected) < 6 * found.stderr
        assert found.stderr < 0.05 * expected


@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
def test_not_fed_back_it_is_the_closed_form(mode: Any) -> None:
    law, lik = noise.Gaussian(0.7), likelihoods.Categorical()
    rnn = noisin.LSTM(F, H, noise=law, mode=mode, feedback=False, **D64)
    model, x = Model(strengthened(rnn), lik), torch.randn(4, 3, F, **D64)
    found = analysis.printed_regularizer(model, x, K=4000)
    with torch.no_grad():
        closed = analysis.Penalty(lik, law, mode)(rnn.eval()(x)[0], model.V).sum()
    assert abs(found.value - closed) < 6 * found.stderr


def test_additive_noise_that_is_fed_back_leaves_no_trace_in_it() -> None:
    """Given the past, its covariance is the same: the formula does not see the feedback."""
    law, lik = noise.Gaussian(0.7), likelihoods.Categorical()
    rnn = strengthened(noisin.RNN(F, H, noise=law, mode="additive", **D64))
    model, x = Model(rnn, lik), torch.randn(4, 3, F, **D64)
    found = analysis.printed_regularizer(model, x, K=4000)
    with torch.no_grad():
        closed = analysis.Penalty(lik, law, "additive")(rnn.eval()(x)[0], model.V).sum()
    assert abs(found.value - closed) < 6 * found.stderr
    kl = analysis.expected_kl(model.train(), x, K=4000)
    assert abs(found.value - kl.value) > 10 * (found.stderr + kl.stderr), "the risk does see it"


def test_the_state_given_is_where_it_starts() -> None:
    lik = likelihoods.Gaussian()
    model = Model(noisin.RNN(F, H, noise=noise.Gaussian(0.5), **D64), lik)
    x, state = torch.zeros(1, 2, F, **D64), 3 * torch.ones(1, 2, H, **D64)
    found = analysis.printed_regularizer(model, x, 20_000, state)
    with torch.no_grad():
        h = model.rnn.eval()(x, state)[0]
    closed = analysis.Penalty(lik, noise.Gaussian(0.5))(h, model.V).sum().detach()
    assert abs(found.value - closed) < 6 * found.stderr
    assert analysis.printed_regularizer(model, x, 1, state).stderr.isnan()


def test_bad_input() -> None:
    lik, x, law = likelihoods.Gaussian(), torch.zeros(2, 1, F, **D64), noise.Gaussian(1.0)
    shared = Model(noisin.RNN(F, H, noise=law, share="sequence", **D64), lik)
    with pytest.raises(InvalidValue, match="RNN has noise shared over time.*share='step'"):
        analysis.printed_regularizer(shared, x)
    reading = Model(noisin.GRU(F, H, noise=law, **D64), lik)
    with pytest.raises(InvalidValue, match="GRU has a state without its noisy z.*site='state'"):
        analysis.printed_regularizer(reading, x)
    with pytest.raises(InvalidValue, match="has both directions"):
        analysis.printed_regularizer(noisin.RNN(F, H, bidirectional=True, noise=law), x)
    with pytest.raises(InvalidType, match="expected a model"):
        analysis.printed_regularizer(lambda x, state: (x, state), x)
    with pytest.raises(InvalidValue, match="noise samples, 1 or more, got 0"):
        analysis.printed_regularizer(Model(noisin.RNN(F, H, noise=law, **D64), lik), x, 0)
