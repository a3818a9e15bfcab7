"""Objectives: their values and gradients by their definitions, and what they come to at zero."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import noisin
from noisin._util import states
from noisin.data import Batch
from noisin.errors import Unsupported
from noisin.likelihoods import Bernoulli
from noisin.models import Dense, Dropouts, LanguageModel, Loss, SequenceModel, Values
from noisin.noise import Gaussian
from noisin.regularizers import WeightDrop
from noisin.regularizers.terms import ActivationPenalty
from noisin.training import TrainConfig, samples
from noisin.training.objectives import (
    FraternalObjective,
    ImportanceObjective,
    NoiseObjective,
    build_objective,
    logit_distance,
)
from tests.pairwise import table
from tests.training import toy, toy_music
from tests.training.test_own_model import Line

WORDS, T, N, K = 11, 5, 3, 4


def language_model(**options: Any) -> LanguageModel:
    """With weights that are large enough for the samples to differ."""
    plain: dict[str, Any] = {"hidden_size": 4, "noise": Gaussian(0.7)}
    model = LanguageModel(WORDS, **(plain | options)).double()
    with torch.no_grad():
        model.embedding.weight.mul_(30)
    return model


def batch(scored: bool = False) -> Batch:
    words = torch.randint(WORDS, (T + 1, N), generator=torch.Generator().manual_seed(1))
    mask = None
    if scored:
        mask = torch.ones(T, N, dtype=torch.bool)
        mask[3:, 0] = mask[1:, 1] = False
    return Batch(words[:-1], words[1:], mask)


def gradients(model: nn.Module, value: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(value, list(model.parameters())))


def from_seed(objective: Any, model: Any, data: Batch, K: int = K, state: Any = None) -> Loss:
    torch.manual_seed(3)
    loss: Loss = objective(model, data, state, K)
    return loss


# Importance


@pytest.mark.parametrize(
    ("group", "scored", "strong"), table(["window", "token"], [False, True], [False, True])
)
def test_importance_weighs_the_samples(group: Any, scored: bool, strong: bool) -> None:
    """Gradient Σ_k w_k ∇(-log p_k) with explicit weights, and the value of the log of the mean."""
    options = {"feedback": False, "noisy_layers": "last"} if strong else {}
    model, data = language_model(**options, terms=[ActivationPenalty(2.0)]), batch(scored)
    loss = from_seed(ImportanceObjective(group), model, data)
    torch.manual_seed(3)
    log_p = -model.loss(data, samples=K, each=True).nll.view(T, K, N)
    mask = torch.ones(T, N, dtype=torch.bool) if data.scored is None else data.scored
    log_p = log_p * mask.unsqueeze(1)
    p = (log_p.sum(0, keepdim=True) if group == "window" else log_p).detach().exp()
    w = p / p.sum(1, keepdim=True)
    weighted = -(w * log_p).sum() / data.count
    ar = loss.terms["ar"]
    assert_close(gradients(model, loss.objective - ar), gradients(model, weighted))
    assert_close(loss.objective - ar, -p.mean(1).log().sum() / data.count)
    assert_close(loss.mean, -log_p.sum() / (K * data.count))
    assert loss.terms["importance"] < 0
    counts = mask.sum(0) if group == "window" else mask
    ess = (1 / w.square().sum(1) * counts).sum() / data.count
    assert_close(loss.measured["effective_samples"], ess)
    assert 1 < ess < K


@pytest.mark.parametrize("group", ["window", "token"])
def test_importance_of_one_sample_is_the_usual_loss(group: Any) -> None:
    model, data = language_model(), batch()
    one = from_seed(ImportanceObjective(group), model, data, K=1)
    usual = from_seed(NoiseObjective(), model, data, K=1)
    assert torch.equal(one.objective, usual.objective)
    pairs = zip(gradients(model, one.objective), gradients(model, usual.objective), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("group", ["window", "token"])
def test_equal_samples_have_equal_weights(group: Any) -> None:
    """Without noise the objective is the usual one, and all samples count."""
    model, data = language_model(noise=None), batch(scored=True)
    loss = from_seed(ImportanceObjective(group), model, data)
    usual = from_seed(NoiseObjective(), model, data, K=1)
    assert_close(loss.objective, usual.objective)
    assert_close(gradients(model, loss.objective), gradients(model, usual.objective))
    assert_close(loss.measured["effective_samples"], torch.tensor(float(K), dtype=torch.float64))
    assert_close(loss.terms["importance"], torch.zeros_like(loss.mean))


def test_importance_draws_weights_for_each_sample() -> None:
    """Which all rows have in common, so that copies of the rows would be equal samples."""
    model, data = language_model(noise=None, weight_drop=WeightDrop(0.5)), batch(scored=True)
    for x in (None, data.x, data.repeat(K).x):
        state = None if x is None else states.detach(model(x)[1])
        loss = from_seed(ImportanceObjective("window"), model, data, state=state)
        torch.manual_seed(3)
        own = [states.sample(state, N, k) for k in range(K)]
        each = [model.loss(data, s, each=True) for s in own]
        assert data.scored is not None
        log_p = torch.stack(
            [-(one.nll * data.scored).sum(0) for one in each if one.nll is not None]
        )
        expected = -(log_p.logsumexp(0) - math.log(K)).sum() / data.count
        assert_close(loss.objective, expected)
        assert_close(gradients(model, loss.objective), gradients(model, expected))
        assert loss.terms["importance"] < 0
        assert loss.measured["effective_samples"] < K
        joined = states.join([one.state for one in each], N)
        assert_close(loss.state, joined)


class Wobbly(Line):
    """A model of the user's own, with noise, and nothing but the two methods."""

    def log_prob(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        error = batch.target - self.weight * batch.x * (1 + torch.randn(batch.x.shape))
        return -(error**2).sum(-1) / 2, state


def test_importance_of_a_model_of_ones_own() -> None:
    model = Wobbly()
    nn.init.ones_(model.weight)
    data = Batch(torch.ones(T, N, 1), torch.ones(T, N, 1))
    loss = from_seed(ImportanceObjective("token"), model, data)
    torch.manual_seed(3)
    log_p, _ = model.log_prob(data.repeat(K))
    expected = -log_p.view(T, K, N).exp().mean(1).log().mean()
    assert_close(loss.objective, expected)
    model.terms = (ActivationPenalty(1.0),)  # type: ignore[assignment]
    with pytest.raises(Unsupported, match="Wobbly, whose loss does not take each=True"):
        samples.losses(model, data, None, K)


# Fraternal dropout


def passes(model: Any, data: Batch, clean: bool = False) -> tuple[Loss, Loss]:
    """The same two passes, one after the other."""
    torch.manual_seed(3)
    one = model.loss(data)
    if clean:
        model.eval()
    two = model.loss(data)
    model.train()
    return one, two


@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize("mode", ["fraternal", "expectation-linear", "pi"])
def test_fraternal_compares_all_logits(mode: Any, scored: bool) -> None:
    dropout = Dropouts(0.2, 0.3, 0.4)
    model = language_model(dropout=dropout, terms=[ActivationPenalty(2.0)])
    data = batch(scored)
    loss = from_seed(FraternalObjective(0.5, mode), model, data, K=1)
    one, two = passes(model, data, clean=mode == "expectation-linear")
    logits = [model.head.predict(some.trace.read[-1]) for some in (one, two)]
    difference = (logits[0] - logits[1]).square()
    penalty = (difference if data.scored is None else difference[data.scored]).mean()
    mean = (one.mean + two.mean) / 2 if mode == "fraternal" else one.mean
    expected = mean + one.terms["ar"] + 0.5 * penalty
    assert_close(loss.objective, expected)
    assert_close(gradients(model, loss.objective), gradients(model, expected))
    assert_close(loss.terms["fraternal"], 0.5 * penalty)
    assert loss.terms["fraternal"] > 0
    assert_close(loss.state, one.state)
    assert model.training


def test_fraternal_starts_both_passes_from_the_same_state() -> None:
    model, data = language_model(noise=None), batch()
    state = model.loss(data).state
    loss = from_seed(FraternalObjective(0.15), model, data, 1, state)
    usual = from_seed(NoiseObjective(), model, data, 1, state)
    assert_close(loss.mean, usual.mean)
    assert_close(loss.state, usual.state)


@pytest.mark.parametrize("mode", ["fraternal", "expectation-linear", "pi"])
def test_two_equal_passes_are_the_usual_loss(mode: Any) -> None:
    """Nothing is drawn, so the logits agree, and the value does to the last bit."""
    model, data = language_model(noise=None), batch()
    loss = from_seed(FraternalObjective(0.0, mode), model, data, K=1)
    usual = from_seed(NoiseObjective(), model, data, K=1)
    assert torch.equal(loss.objective, usual.objective)
    assert_close(gradients(model, loss.objective), gradients(model, usual.objective))
    other = from_seed(FraternalObjective(7.0, mode), model, data, K=1)
    assert_close(other.terms["fraternal"], torch.zeros_like(loss.mean))


def test_the_distance_of_notes() -> None:
    """A head of its own, of Bernoulli logits, with parameters of its own."""
    head = Dense(4, 6, Bernoulli()).double()
    d = torch.randn(T, N, 4, dtype=torch.float64, requires_grad=True)
    notes = torch.zeros(T, N, 6)
    expected = (d @ head.V).square().mean()
    found = logit_distance(d, head, Batch(notes, notes))
    assert_close(found, expected)
    inputs = [d, head.weight]
    for a, b in zip(
        torch.autograd.grad(found, inputs), torch.autograd.grad(expected, inputs), strict=True
    ):
        assert_close(a, b)


class Plain(SequenceModel):
    """A model whose loss says nothing of its activations."""

    def loss(self, batch: Batch, state: Any = None) -> Loss:  # type: ignore[override]
        return Loss(super().loss(batch, state).mean, batch.count)


def test_fraternal_needs_logits() -> None:
    model = Plain(Values(2), [noisin.LSTM(2, 2)], Dense(2, 2, Bernoulli()))
    data = Batch(torch.zeros(T, N, 2), torch.zeros(T, N, 2))
    for one in (model, Line()):
        with pytest.raises(Unsupported, match="two passes, which (Plain|Line) does not give"):
            FraternalObjective()(one, data, None, 1)


# In training


def test_the_objective_of_the_settings() -> None:
    def built(**train: Any) -> Any:
        return build_objective(TrainConfig(**train))

    assert isinstance(built(), NoiseObjective)
    assert isinstance(built(objective="penalty"), NoiseObjective)
    assert built(objective="importance", K=2) == ImportanceObjective("window")
    token = {"importance": {"group": "token"}}
    assert built(objective="importance", K=2, **token) == ImportanceObjective("token")
    assert built(objective="fraternal") == FraternalObjective(0.15, "fraternal")
    given = {"kappa": 0.25, "mode": "expectation-linear"}
    assert built(objective="fraternal", fraternal=given) == FraternalObjective(**given)


RUNS: dict[str, dict[str, Any]] = {
    "window": {"objective": "importance", "K": 2},
    "token": {"objective": "importance", "K": 3, "importance": {"group": "token"}},
    "fraternal": {"objective": "fraternal"},
    "pi": {"objective": "fraternal", "fraternal": {"mode": "pi"}},
}


@pytest.mark.long
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_was_killed_goes_on_in_the_same_bits(name: str, tmp_path: Path) -> None:
    settings = toy.config(train={**RUNS[name], "epochs": 2, "save_steps": 3})
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert toy.run(whole, settings=settings).code == 0
    kill = toy.signal_at(killed, 70, signal.SIGKILL)
    assert toy.run(killed, settings=settings, before=kill).code == -signal.SIGKILL
    assert toy.run(killed, settings=settings).code == 0
    assert toy.result(killed) == toy.result(whole)
    line = toy.result(whole)["metrics"][-1]
    if "fraternal" in str(settings.train.objective):
        assert line["terms"]["fraternal"] > 0
        assert "measured" not in line
    else:
        assert line["terms"]["importance"] < 0
        assert 1 < line["measured"]["effective_samples"] < settings.train.K


def test_importance_of_padded_pieces(tmp_path: Path) -> None:
    """A padded target has no weight and no share in the effective number of samples."""
    train = {**toy_music.TRAIN, "objective": "importance", "K": 2, "epochs": 1}
    record = toy.fit(tmp_path, **toy_music.SETTINGS | {"train": train})
    (line,) = record.metrics
    assert 1 <= line["measured"]["effective_samples"] <= 2
