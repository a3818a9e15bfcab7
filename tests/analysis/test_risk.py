"""What noise adds to the risk: in strong mode, on the model's own data, and on any other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import noisin
from noisin import analysis, likelihoods, noise
from noisin.errors import InvalidType, InvalidValue
from noisin.objective import Window
from tests.pairwise import table

T, N, F, H, O = 5, 4, 2, 3, 6  # noqa: E741
D64: dict[str, Any] = {"dtype": torch.float64}


class Model(nn.Module):
    def __init__(self, rnn: nn.Module, likelihood: likelihoods.Likelihood) -> None:
        super().__init__()
        self.rnn, self.likelihood = rnn, likelihood
        self.V = nn.Linear(H, O, bias=False, **D64)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        z, state = self.rnn(x, state)
        return self.V(z), state


def model(lik: Any, gamma: float = 0.5, **kwargs: Any) -> Model:
    m = Model(noisin.LSTM(F, H, noise=noise.Gaussian(gamma), **D64, **kwargs), lik)
    with torch.no_grad():
        for p in m.parameters():
            p.mul_(2)
    return m


LIKELIHOODS = [
    *(likelihoods.Bernoulli(), likelihoods.Gaussian(0.5)),
    *(likelihoods.Poisson(), likelihoods.Categorical()),
]


@pytest.mark.parametrize("lik", LIKELIHOODS, ids=str)
def test_in_strong_mode_the_difference_is_the_regularizer(lik: Any) -> None:
    m, x = model(lik, feedback=False), torch.randn(T, N, F, **D64)
    target = lik.sample(torch.randn(T, N, O, **D64))  # any targets
    risk = analysis.risk_decomposition(m, Window(x, target), K=20_000)
    with torch.no_grad():
        h, _ = m.rnn.eval()(x)
        reg = analysis.explicit_regularizer(lik, m.V.weight.t(), h, noise.Gaussian(0.5), K=4000)
    stderr = (risk.stderr**2 + reg.stderr**2).sqrt()
    assert abs(risk.difference - reg.monte_carlo) < 6 * stderr
    assert risk.difference > 6 * risk.stderr
    torch.testing.assert_close(risk.R, risk.R_det + risk.difference)


@pytest.mark.parametrize("lik", LIKELIHOODS, ids=str)
def test_on_the_models_own_data_the_difference_is_the_kl(lik: Any) -> None:
    """For fed-back noise too: the mean over targets drawn from the clean model."""
    m, x = model(lik), torch.randn(T, 1, F, **D64)
    kl = analysis.expected_kl(m, x, K=5000)
    assert kl.value > 6 * kl.stderr
    with torch.no_grad():
        many = x.expand(T, 4000, F)
        s, _ = m.eval()(many)
        risk = analysis.risk_decomposition(m, Window(many, lik.sample(s)), K=20)
    per_row = risk.difference / 4000
    # The targets are random too: their share of the error, from the spread of log p(x).
    spread = lik.nll(s=s, x=lik.sample(s)).reshape(T, 4000, -1).sum((0, 2)).std() / 4000**0.5
    assert abs(per_row - kl.value) < 6 * (kl.stderr**2 + spread**2).sqrt()


def test_on_other_data_fed_back_noise_can_lower_the_risk() -> None:
    """Where noise moves the mean of z, targets on that side like the noisy model better."""
    m = Model(noisin.RNN(F, H, noise=noise.Gaussian(1.0), **D64), likelihoods.Gaussian(1.0))
    x = torch.randn(T, 1, F, **D64)
    with torch.no_grad():
        m.rnn.weight_hh_l0.mul_(4)
        clean, _ = m.eval()(x)
        s, _ = m.train()(x.expand(T, 50_000, F))
        target = clean + 300 * (s.mean(1, keepdim=True) - clean)
    risk = analysis.risk_decomposition(m, Window(x, target), K=50_000)
    assert risk.difference < -6 * risk.stderr


@pytest.mark.parametrize(
    ("lik", "layers", "feedback"), table(LIKELIHOODS, [1, 2], [True, False]), ids=str
)
def test_the_fisher_estimate_is_the_kl_of_small_noise(
    lik: Any, layers: int, feedback: bool
) -> None:
    m = model(lik, gamma=0.05, num_layers=layers, feedback=feedback)
    x = torch.randn(T, N, F, **D64)
    fisher = analysis.fisher_penalty(m, x, draws=300)
    kl = analysis.expected_kl(m, x, K=1000)
    stderr = (fisher.stderr**2 + kl.stderr**2).sqrt()
    assert abs(fisher.value - kl.value) < 6 * stderr + 0.02 * kl.value
    assert fisher.stderr < 0.15 * fisher.value


@pytest.mark.long
def test_the_fisher_estimate_in_strong_mode_is_the_closed_form() -> None:
    lik = likelihoods.Categorical()
    m, x = model(lik, feedback=False), torch.randn(T, N, F, **D64)
    fisher = analysis.fisher_penalty(m, x, draws=5000)
    with torch.no_grad():
        h, _ = m.rnn.eval()(x)
    closed = analysis.Penalty(lik, noise.Gaussian(0.5))(h, m.V.weight.t()).sum()
    assert abs(fisher.value - closed) < 6 * fisher.stderr


def test_noise_per_layer_has_its_own_variance_and_comes_back() -> None:
    lik = likelihoods.Gaussian()
    laws = (noise.Gaussian(0.2), None)
    m = Model(noisin.LSTM(F, H, 2, noise=list(laws), **D64), lik)
    only = Model(noisin.LSTM(F, H, 2, noise=[noise.Gaussian(0.4), None], **D64), lik)
    only.load_state_dict(m.state_dict())
    x = torch.randn(T, N, F, **D64)
    found = [
        analysis.fisher_penalty(each, x, 20, generator=torch.Generator().manual_seed(0)).value
        for each in (m, only)
    ]
    torch.testing.assert_close(found[1], 4 * found[0])
    assert m.rnn.noise == laws


def test_bad_input() -> None:
    m = Model(noisin.LSTM(F, H, **D64), likelihoods.Gaussian())
    with pytest.raises(InvalidValue, match="drew no noise"):
        analysis.fisher_penalty(m, torch.zeros(T, N, F, **D64))
    m.rnn.noise = noise.Gaussian(0.5)  # type: ignore[assignment]
    with pytest.raises(RuntimeError):
        analysis.fisher_penalty(m, torch.zeros(T, N, F + 1, **D64))
    assert m.rnn.noise == noise.Gaussian(0.5)


class WithDropout(Model):
    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        z, state = self.rnn(x, state)
        return nn.functional.dropout(z, 0.5, self.training) @ self.V.weight.t(), state


def test_the_clean_model_has_no_dropout_either() -> None:
    lik = likelihoods.Gaussian()
    m = WithDropout(noisin.LSTM(F, H, noise=noise.Gaussian(0.3), **D64), lik)
    batch = Window(torch.randn(T, N, F, **D64), torch.randn(T, N, O, **D64))
    found = [analysis.risk_decomposition(m, batch, K=3).R_det for _ in range(2)]
    assert torch.equal(*found)
    scores = [
        analysis.fisher_penalty(m, batch.x, 3, generator=torch.Generator().manual_seed(0)).value
        for _ in range(2)
    ]
    assert torch.equal(*scores)
    assert m.training
    only_dropout = WithDropout(nn.LSTM(F, H, **D64), lik)
    kl = analysis.expected_kl(only_dropout, batch.x, K=200)
    assert kl.value > 6 * kl.stderr
    assert analysis.expected_kl(only_dropout.eval(), batch.x, K=2).value == pytest.approx(0)


@pytest.mark.parametrize("context", [torch.no_grad, torch.enable_grad])
def test_inside_no_grad(context: Any) -> None:
    m, x = model(likelihoods.Categorical()), torch.randn(T, N, F, **D64)
    with context():
        assert analysis.expected_kl(m, x, K=1).stderr.isnan()
        assert analysis.fisher_penalty(m, x, draws=1).stderr.isnan()


def test_bad_numbers() -> None:
    m, x = model(likelihoods.Gaussian()), torch.randn(T, N, F, **D64)
    with pytest.raises(InvalidValue, match="draws must be a whole number, 1 or more, got 0"):
        analysis.fisher_penalty(m, x, draws=0)
    with pytest.raises(InvalidValue, match="K must be a whole number of noise samples, 1 or more"):
        analysis.expected_kl(m, x, K=0)


def test_a_plain_function_cannot_be_silenced() -> None:
    def f(x: Tensor, state: Any) -> tuple[Tensor, Any]:
        return x, state

    x, lik = torch.zeros(T, N, O), likelihoods.Gaussian()
    for call in (
        lambda: analysis.risk_decomposition(f, Window(x, x), 2, lik),
        lambda: analysis.expected_kl(f, x, 2, likelihood=lik),
        lambda: analysis.fisher_penalty(f, x, 2, likelihood=lik),
    ):
        with pytest.raises(InvalidType, match="expected a model, a torch.nn.Module, got function"):
            call()


def test_the_batch_may_come_first() -> None:
    """The same numbers, of a model that contains an RNN with its batch first."""
    made = {}
    for rows_first in (False, True):
        torch.manual_seed(0)
        rnn = noisin.RNN(1, 2, noise=noise.Gaussian(0.5), feedback=False, batch_first=rows_first)
        made[rows_first] = Wrapped(rnn)
    x, target = torch.randn(5, 4, 1), torch.randn(5, 4, 2)
    lik, turned = likelihoods.Gaussian(), Window(x.transpose(0, 1), target.transpose(0, 1))
    plain = analysis.risk_decomposition(made[False], Window(x, target), likelihood=lik)
    with pytest.raises(InvalidValue, match="Pass batch_first=True"):
        analysis.risk_decomposition(made[True], turned, likelihood=lik)
    risk = analysis.risk_decomposition(made[True], turned, likelihood=lik, batch_first=True)
    torch.testing.assert_close(risk.R_det, plain.R_det)
    one = analysis.expected_kl(made[False], x, 4000, likelihood=lik)
    two = analysis.expected_kl(made[True], turned.x, 4000, likelihood=lik, batch_first=True)
    assert one.value == pytest.approx(two.value.item(), rel=0.1)


class Wrapped(nn.Module):
    """A model whose own attributes do not say where its batch is."""

    def __init__(self, rnn: nn.Module) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: Tensor, state: Any = None) -> Any:
        return self.rnn(x, state)
