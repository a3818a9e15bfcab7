"""The K-sample objective, the marginal, ensembles and the empirical-Bayes densities."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

import noisin
from noisin import likelihoods, noise, objective
from noisin.errors import InvalidValue, Unsupported
from noisin.objective import Estimate, Window
from tests import stats

T, N, F, H, O = 4, 3, 2, 5, 6  # noqa: E741
D64: dict[str, Any] = {"dtype": torch.float64}


class Model(nn.Module):
    """An RNN and a prediction matrix: what a user's own model looks like."""

    likelihood = likelihoods.Categorical()

    def __init__(self, rnn: nn.Module) -> None:
        super().__init__()
        self.rnn = rnn
        self.V = nn.Linear(H, O, **D64)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        z, state = self.rnn(x, state)
        return self.V(z), state


def model(**kwargs: Any) -> Model:
    return Model(noisin.LSTM(F, H, **{"noise": noise.Gaussian(0.5), **D64, **kwargs}))


def batch(steps: int = T) -> Window:
    return Window(torch.randn(steps, N, F, **D64), torch.randint(O, (steps, N)))


def test_samples_are_folded_into_the_batch() -> None:
    """Each of the K samples is what a pass of its own gives, with its part of the noise."""
    K, m, b = 7, model(generator=torch.Generator()), batch()
    m.rnn.generator.manual_seed(3)
    found = objective.estimate(m, b, K)
    m.rnn.generator.manual_seed(3)
    eps = m.rnn.sample_eps(b.x.repeat(1, K, 1)).view(1, T, K, N, H)
    for k in range(K):
        z, (h, _c) = m.rnn(b.x, eps=eps[:, :, k])
        nll = m.likelihood.nll(s=m.V(z), x=b.target)
        assert_close(found.log_p[k], -nll.sum(0))
        assert_close(found.state[0][:, k * N : (k + 1) * N], h)
    assert_close(found.bound, found.log_p.sum() / K)


class Transposing(Model):
    """A model that takes time first and has an RNN that takes the batch first."""

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        s, state = super().forward(x.transpose(0, 1), state)
        return s.transpose(0, 1), state


@pytest.mark.parametrize("feedback", [True, False])
def test_the_batch_comes_first_where_it_is_said(feedback: bool) -> None:
    """K copies go along the batch, of a model that has it first and of one that transposes."""
    K, b = 5, batch()
    swapped = Window(b.x.transpose(0, 1), b.target.transpose(0, 1))
    laws = {"noise": noise.Gaussian(0.5), "feedback": feedback, **D64}
    rnn = noisin.LSTM(F, H, batch_first=True, **laws)
    first, transposing = Model(rnn), Transposing(rnn)
    transposing.V = first.V
    timed = Model(noisin.LSTM(F, H, **laws))
    timed.load_state_dict(first.state_dict())
    found, mixed = [], []
    for m, window, said in ((timed, b, None), (first, swapped, True), (transposing, b, False)):
        torch.manual_seed(3)
        found.append(objective.estimate(m, window, K, batch_first=said))
        torch.manual_seed(3)
        ensemble = objective.predict(m, window.x, K, batch_first=said)
        log_p = ensemble.arithmetic(window.target)
        mixed.append(log_p.transpose(0, 1) if said else log_p)
    for e, log_p in zip(found[1:], mixed[1:], strict=True):
        assert_close(e.log_p, found[0].log_p)
        assert_close(e.state[0], found[0].state[0])
        assert_close(log_p, mixed[0])


def test_an_rnn_itself_says_where_its_batch_is() -> None:
    x, target = torch.randn(N, T, F, **D64), torch.randn(N, T, H, **D64)
    rnn = noisin.LSTM(F, H, batch_first=True, noise=noise.Gaussian(0.5), **D64)
    found = objective.estimate(rnn, Window(x, target), 4, likelihoods.Gaussian())
    assert found.log_p.shape == (4, N)


def test_one_sample_is_the_loss_of_algorithm_1() -> None:
    m, b = model(), batch()
    torch.manual_seed(5)
    found = objective.estimate(m, b)
    torch.manual_seed(5)
    loss = m.likelihood.nll(s=m(b.x)[0], x=b.target).sum()
    assert_close(-found.bound, loss)
    assert found.bound_stderr.isnan()
    assert found.marginal_stderr.isnan()
    assert_close(found.marginal, found.bound)


def test_the_bound_is_differentiable() -> None:
    m, b = model(), batch()
    objective.estimate(m, b, K=3).bound.backward()
    assert m.rnn.weight_hh_l0.grad.any()


def test_the_noise_is_on_in_eval_and_dropout_is_not_its_concern() -> None:
    m, b = model().eval(), batch()
    found = objective.estimate(m, b, K=5)
    assert found.bound_stderr > 0
    assert torch.equal(m(b.x)[0], m(b.x)[0])


def test_states_of_all_samples_are_carried_across_windows() -> None:
    m = model(noise=noise.Gaussian(0.0))
    whole = batch(6)
    first = objective.estimate(m, Window(whole.x[:4], whole.target[:4]), K=5)
    assert first.state[0].shape == (1, 5 * N, H)
    second = objective.estimate(m, Window(whole.x[4:], whole.target[4:], first.state), K=5)
    together = objective.estimate(m, whole, K=5)
    assert_close(first.log_p + second.log_p, together.log_p)
    shared = (torch.randn(1, N, H, **D64), torch.randn(1, N, H, **D64))
    start = objective.estimate(m, Window(whole.x, whole.target, shared), K=5)
    assert_close(start.log_p[0], start.log_p[4])


def test_states_of_cells_are_carried_too() -> None:
    cell = noisin.Noisy(nn.LSTMCell(F, N, **D64), noise.Gaussian(0.0))  # H = N: no guessing by size
    m, whole = _Unrolled(cell, nn.Linear(N, O, **D64)), batch(6)
    lik = likelihoods.Categorical()
    first = objective.estimate(m, Window(whole.x[:4], whole.target[:4]), 5, lik)
    assert first.state[0].shape == (5 * N, N)
    second = objective.estimate(m, Window(whole.x[4:], whole.target[4:], first.state), 5, lik)
    assert_close(first.log_p + second.log_p, objective.estimate(m, whole, 5, lik).log_p)
    start = tuple(torch.randn(N, N, **D64) for _ in range(2))
    assert objective.estimate(m, Window(whole.x, whole.target, start), 5, lik).log_p.shape == (5, N)


@given(st.lists(st.lists(st.floats(-500, 10), min_size=2, max_size=2), min_size=1, max_size=9))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_the_bound_never_exceeds_the_marginal(rows: list[list[float]]) -> None:
    found = Estimate(torch.tensor(rows, **D64), None)
    assert found.bound <= found.marginal + 1e-9
    assert found.marginal.isfinite()


def conjugate(x: float, K: int, seed: int) -> Estimate:
    """One step of additive noise around zero with a Gaussian likelihood: x ~ N(0, 0.25 + 1)."""
    cell = noisin.RNN(1, 1, noise=noise.Gaussian(0.5), mode="additive", bias=False, **D64)
    with torch.no_grad():
        cell.weight_ih_l0.zero_()
    torch.manual_seed(seed)
    one = Window(torch.zeros(1, 1, 1, **D64), torch.full((1, 1, 1), x, **D64))
    with torch.no_grad():
        return objective.estimate(cell, one, K, likelihoods.Gaussian())


@pytest.mark.parametrize("x", [0.0, 1.5])
def test_against_the_exact_marginal(x: float) -> None:
    found = conjugate(x, 100_000, 0)
    variance = 0.25 + 1
    exact = -0.5 * math.log(2 * math.pi * variance) - x**2 / (2 * variance)
    bound = -0.5 * math.log(2 * math.pi) - (x**2 + 0.25) / 2
    assert abs(found.marginal - exact) < 6 * found.marginal_stderr
    assert abs(found.bound - bound) < 6 * found.bound_stderr


@pytest.mark.parametrize("which", ["bound", "marginal"])
def test_standard_errors_are_those_of_repetition(which: str) -> None:
    many = [conjugate(1.0, 400, seed) for seed in range(300)]
    values = torch.stack([getattr(e, which) for e in many])
    errors = torch.stack([getattr(e, f"{which}_stderr") for e in many])
    # The spread of 300 estimates is known to 4 %, so 20 % is five standard errors.
    assert errors.mean().item() == pytest.approx(values.std().item(), rel=0.2)


def test_the_marginal_tightens_with_more_samples() -> None:
    m, b = model(noise=noise.Gaussian(1.0)), batch()
    with torch.no_grad():
        log_p = objective.estimate(m, b, K=2**13).log_p
    means = [
        torch.stack([Estimate(part, None).marginal for part in log_p.split(K)]).mean()
        for K in (1, 4, 16, 64, 256)
    ]
    assert all(a < b for a, b in itertools.pairwise(means))


class TestEnsembles:
    def test_categorical(self) -> None:
        m, b = model(), batch()
        with torch.no_grad():
            e = objective.predict(m, b.x, K=9)
        assert e.s.shape == (9, T, N, O)
        for name, p in (
            ("arithmetic", e.s.softmax(-1).mean(0)), ("geometric", e.s.mean(0).softmax(-1)),
        ):  # fmt: skip
            every = torch.arange(O).expand(T, N, O).permute(2, 0, 1)
            found = torch.stack([getattr(e, name)(x) for x in every], dim=-1).exp()
            assert_close(found, p)
            assert_close(found.sum(-1), torch.ones(T, N, **D64))
        # The normaliser of the geometric mean, by its definition.
        geometric = e.s.log_softmax(-1).mean(0).exp().sum(-1).log()
        assert_close(e.log_normaliser(), geometric)

    @pytest.mark.parametrize(
        "lik", [likelihoods.Gaussian(0.5), likelihoods.Poisson(), likelihoods.Bernoulli()]
    )
    def test_elementwise_outputs_are_predicted_together(self, lik: likelihoods.Likelihood) -> None:
        m, b = model(), batch()
        with torch.no_grad():
            e = objective.predict(m, b.x, K=4, likelihood=lik)
            x = lik.sample(e.s[0])
            joint = -lik.nll(s=e.s, x=x.expand_as(e.s)).sum(-1)
        assert_close(e.arithmetic(x), joint.exp().mean(0).log())
        assert_close(e.geometric(x), -lik.nll(s=e.s.mean(0), x=x).sum(-1))
        assert (e.log_normaliser() <= 1e-12).all()

    def test_in_strong_mode_the_geometric_ensemble_is_the_clean_rnn(self) -> None:
        m, b = model(feedback=False, noise=noise.Gumbel(0.8)), batch()
        with torch.no_grad():
            s = objective.predict(m, b.x[:, :1], K=40_000).s
            clean, _ = m.eval()(b.x[:, :1])
        sample = s[:, -1, 0, 0].numpy()
        stats.assert_mean(sample, clean[-1, 0, 0].item(), sample.std())


class TestEmpiricalBayes:
    GRID = torch.linspace(-30, 30, 600_001, **D64)

    @pytest.mark.parametrize("mode", ["additive", "multiplicative"])
    @pytest.mark.parametrize("f", [0.8, -0.5])
    @pytest.mark.parametrize(
        "law",
        [
            noise.Gaussian(0.5),
            noise.Gamma(0.5),
            noise.Gumbel(0.5),
            noise.Laplace(0.5),
            noise.Logistic(0.5),
            noise.Beta(1.5),
            noise.ChiSquare(3.0),
        ],
        ids=str,
    )
    def test_the_transition_density_is_one(self, law: noise.Family, f: float, mode: Any) -> None:
        z = self.GRID.unsqueeze(-1)
        log_p = objective.transition_log_density(z, torch.full_like(z, f), law, mode)
        p = log_p.exp()
        assert torch.trapezoid(p, self.GRID).item() == pytest.approx(1, abs=2e-3)
        mean = torch.trapezoid(p * self.GRID, self.GRID).item()
        assert mean == pytest.approx(f, abs=5e-3), "unbiased"

    def test_a_unit_at_zero_has_no_density_under_multiplicative_noise(self) -> None:
        """A ReLU's f of 0 stays 0 whatever the noise: a point mass, which was NaN."""
        f = torch.tensor([[0.5, 0.0, 0.3], [0.1, 0.0, 0.0]], **D64)
        law = noise.Gaussian(0.5)
        with pytest.raises(InvalidValue, match=r"0 at 3 of 6 entries \(units 1, 2\).*no density"):
            objective.transition_log_density(f, f, law, "multiplicative")
        assert objective.transition_log_density(f, f, law, "additive").isfinite().all()
        cell = noisin.RNNCell(1, 2, nonlinearity="relu", noise=law, **D64)
        with torch.no_grad():
            for weight in cell.parameters():
                weight.fill_(-1.0)
        x = torch.ones(2, 1, 1, **D64)
        with pytest.raises(InvalidValue, match="mode='additive'"):
            objective.log_joint(cell, nn.Linear(2, 1, **D64), x, x, torch.zeros(2, 1, 2, **D64),
                                likelihoods.Gaussian())  # fmt: skip

    def test_the_joint_integrates_to_the_marginal(self) -> None:
        """Two steps of one unit: the latent states integrated out on a grid, against sampling."""
        cell = noisin.Noisy(nn.RNNCell(1, 1, **D64), noise.Gaussian(0.4), mode="additive")
        V = nn.Linear(1, 1, **D64)
        x, target = torch.randn(2, 1, 1, **D64), torch.randn(2, 1, 1, **D64)
        lik = likelihoods.Gaussian(0.3)
        grid = torch.linspace(-4, 4, 401, **D64)
        z = torch.stack(torch.meshgrid(grid, grid, indexing="ij")).reshape(2, -1, 1)
        rows = z.shape[1]
        with torch.no_grad():
            log_p = objective.log_joint(
                cell, V, x.expand(2, rows, 1), target.expand(2, rows, 1), z, lik
            )
            p = log_p.exp().view(401, 401)
            exact = torch.trapezoid(torch.trapezoid(p, grid), grid).log()
            m = _Unrolled(cell, V)
            found = objective.estimate(m, Window(x, target), K=100_000, likelihood=lik)
        assert abs(found.marginal - exact) < 6 * found.marginal_stderr + 1e-6

    def test_bad_input(self) -> None:
        args = (nn.Linear(1, 1), torch.zeros(2, 1, 1), torch.zeros(2, 1, 1), torch.zeros(2, 1, 1))
        lik = likelihoods.Gaussian()
        unfed = noisin.Noisy(nn.RNNCell(1, 1), noise.Gaussian(1.0), feedback=False)
        with pytest.raises(InvalidValue, match="feedback=True"):
            objective.log_joint(unfed, *args, lik)
        fed = noisin.Noisy(nn.RNNCell(1, 1), noise.Gaussian(1.0))
        with pytest.raises(InvalidValue, match="the same steps and rows"):
            objective.log_joint(fed, *args[:3], torch.zeros(3, 1, 1), lik)
        with pytest.raises(InvalidValue, match="a noise with a density, got None"):
            objective.log_joint(noisin.Noisy(nn.RNNCell(1, 1), None), *args, lik)
        with pytest.raises(Unsupported, match="Bernoulli.*no density"):
            objective.log_joint(noisin.Noisy(nn.RNNCell(1, 1), noise.Bernoulli(0.5)), *args, lik)


class _Unrolled(nn.Module):
    def __init__(self, cell: nn.Module, V: nn.Module) -> None:
        super().__init__()
        self.cell, self.V = cell, V

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        z, state = noisin.unroll(self.cell, x, state)
        return self.V(z), state


def test_a_plain_function_is_a_model_too() -> None:
    def f(x: Tensor, state: Any) -> tuple[Tensor, Any]:
        return x + torch.randn_like(x), state

    found = objective.estimate(f, Window(torch.zeros(2, 3, 1), torch.zeros(2, 3, 1)), 50,
                               likelihoods.Gaussian())  # fmt: skip
    assert found.marginal > found.bound


def test_few_effective_samples_have_no_standard_error() -> None:
    found = Estimate(torch.tensor([[0.0], [-500.0], [-600.0]], **D64), None)
    assert found.effective_samples.item() == pytest.approx(1)
    assert found.marginal_stderr.isnan()
    assert found.bound_stderr.isfinite()
    even = Estimate(torch.zeros(50, 2, **D64), None)
    assert_close(even.effective_samples, torch.full((2,), 50.0, **D64))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, b: objective.estimate(m, (b.x, b.target)), "expected an objective.Window"),
        (
            lambda m, b: objective.estimate(model(batch_first=True), b),
            "contains 'rnn', a LSTM with batch_first=True.*Pass batch_first=True if",
        ),
        (lambda m, b: objective.estimate(m, b, batch_first=1), "batch_first must be True or"),
        (
            lambda m, b: objective.estimate(lambda x, s: (x[-1:], s), b, 1, likelihoods.Gaussian()),
            "T = 4 steps",
        ),
        (lambda m, b: objective.estimate(m, Window(b.x, b.target[0])), "in dimension 1"),
        (
            lambda m, b: objective.transition_log_density(b.x, b.x, noise.Gaussian(1.0), "sum"),
            "mode must be",
        ),
        (
            lambda m, b: objective.estimate(m, b, K=0),
            "K must be a whole number of noise samples, 1 or more, got 0",
        ),
        (lambda m, b: objective.estimate(m, b, K=2.0), "got 2.0"),
        (lambda m, b: objective.estimate(m.rnn, b), "set LSTM.likelihood"),
        (lambda m, b: objective.estimate(m, Window(b.x[:, 0, 0], b.target)), r"got \(4,\)"),
        (
            lambda m, b: objective.estimate(m, Window(b.x, b.target[:, :2]), 4),
            "expected N = 3 rows",
        ),
        (
            lambda m, b: objective.estimate(m, Window(b.x, b.target, torch.zeros(1, 2, H)), K=4),
            r"K · N = 12 carried rows.*got \(1, 2, 5\)",
        ),
        (
            lambda m, b: objective.estimate(
                lambda x, state: (x[:, :1], state), b, 2, likelihoods.Gaussian()
            ),
            r"model\(x, state\) -> \(s, state\)",
        ),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        call(model(), batch())
