"""Scores: exact against one pass over everything, estimates against noisin.objective."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import noisin
from noisin import noise, objective
from noisin.data import Windows
from noisin.errors import InvalidValue, NoisinError
from noisin.models import Dropouts, LanguageModel
from noisin.tasks import PERPLEXITY, Score
from noisin.training.predictors import Arithmetic, Clean, Geometric, Marginal, evaluate
from tests import stats

WORDS = 7
IDS = np.random.RandomState(0).randint(WORDS, size=83).astype(np.int32)


def perplexity(lm: Any, ids: Any, batch_size: int = 10, length: int = 70, **options: Any) -> Score:
    return evaluate(Clean(lm, **options), Windows(ids, batch_size, length).epoch(0))


def marginal(lm: Any, ids: Any, K: int, length: int = 35, **options: Any) -> Score:
    predictor = Marginal(lm, K, length=length, **options)
    return evaluate(predictor, Windows(ids, 10, length).epoch(0))


def arithmetic(
    lm: Any, ids: Any, K: int, length: int = 35, batch_size: int = 10, **options: Any
) -> Score:
    return evaluate(Arithmetic(lm, K, **options), Windows(ids, batch_size, length).epoch(0))


def geometric(lm: Any, ids: Any, K: int, length: int = 35, **options: Any) -> Score:
    return evaluate(Geometric(lm, K, **options), Windows(ids, 10, length).epoch(0))


ESTIMATES = {"marginal": marginal, "arithmetic": arithmetic, "geometric": geometric}


def model(**settings: Any) -> LanguageModel:
    lm = LanguageModel(WORDS, hidden_size=5, **settings).double()
    with torch.no_grad():
        for parameter in lm.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return lm


def columns(batch_size: int) -> tuple[Tensor, Tensor]:
    height = len(IDS) // batch_size
    words = torch.from_numpy(IDS[: height * batch_size].reshape(batch_size, height).T).long()
    return words[:-1], words[1:]


def mean_nll(s: Tensor, target: Tensor) -> float:
    return F.cross_entropy(s.flatten(0, 1), target.flatten()).item()


# Exact


@pytest.mark.parametrize("temperature", [1.0, 0.7, 3])
@pytest.mark.parametrize("length", [1, 7, 70, 1000])
@pytest.mark.parametrize("batch_size", [10, 1])
def test_perplexity_is_one_pass_over_all_columns(
    batch_size: int, length: int, temperature: float
) -> None:
    lm = model(noise=noise.Gaussian(0.5), dropout=Dropouts(0.5, 0.5, 0.5, 0.5))
    score = perplexity(lm, IDS, batch_size=batch_size, length=length, temperature=temperature)
    x, target = columns(batch_size)
    assert score.count == target.numel() == {10: 70, 1: 82}[batch_size]
    assert score.nats == pytest.approx(mean_nll(lm.eval()(x)[0] / temperature, target), rel=1e-12)
    assert score.stderr is None


def test_a_model_that_knows_nothing() -> None:
    lm = LanguageModel(WORDS, hidden_size=5)
    with torch.no_grad():
        lm.embedding.weight.zero_()
    assert PERPLEXITY.value(perplexity(lm, IDS).nats) == pytest.approx(WORDS, rel=1e-6)


def test_a_hopeless_model_has_no_overflow() -> None:
    assert PERPLEXITY.value(800.0) == math.inf
    assert PERPLEXITY.value(-2.0) == math.exp(-2.0)


@pytest.mark.parametrize("training", [True, False])
def test_the_model_and_the_stream_are_left_as_they_were(training: bool) -> None:
    lm = model(noise=noise.Gaussian(0.5), dropout=Dropouts(0.5)).train(training)
    lm.layers[0].eval()
    before = torch.get_rng_state()
    modes = [module.training for module in lm.modules()]
    with noisin.noise_on(lm):
        perplexity(lm, IDS)
        assert all(layer.rnn._noise_switch is True for layer in lm.layers)
    assert [module.training for module in lm.modules()] == modes
    assert torch.equal(torch.get_rng_state(), before)
    for estimate in ESTIMATES.values():
        estimate(lm, IDS, K=2)
    assert [module.training for module in lm.modules()] == modes
    assert all(layer.rnn._noise_switch is None for layer in lm.layers)
    assert all(parameter.grad is None for parameter in lm.parameters())


# Estimates


class Tempered(torch.nn.Module):
    def __init__(self, lm: LanguageModel, temperature: float) -> None:
        super().__init__()
        self.lm, self.temperature, self.likelihood = lm, temperature, lm.likelihood

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        s, state = self.lm(x, state)
        return s / self.temperature, state


def by_objective(name: str, lm: LanguageModel, length: int, K: int, temperature: float) -> float:
    """The same estimates by noisin.objective, which holds all natural parameters."""
    x, target = columns(10)
    tempered = Tempered(lm, temperature).eval()
    total, state = 0.0, None
    for xs, targets in zip(x.split(length), target.split(length), strict=True):
        if name == "marginal":
            e = objective.estimate(tempered, objective.Window(xs, targets, state), K)
            total, state = total + e.marginal.item(), e.state
        else:
            ensemble = objective.predict(tempered, xs, K, state)
            total, state = total + getattr(ensemble, name)(targets).sum().item(), ensemble.state
    return -total / target.numel()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("length", [1, 3, 100])
@pytest.mark.parametrize("name", ESTIMATES)
def test_estimates_are_those_of_the_objective(name: str, length: int, temperature: float) -> None:
    lm = model(noise=noise.Gaussian(0.5), dropout=Dropouts(0.5))
    torch.manual_seed(1)
    score = ESTIMATES[name](lm, IDS, K=3, length=length, temperature=temperature)
    torch.manual_seed(1)
    expected = by_objective(name, lm, length, 3, temperature)
    assert score.count == 70
    assert score.nats == pytest.approx(expected, rel=1e-12)


def test_the_marginal_of_single_words_is_the_arithmetic_ensemble() -> None:
    lm = model(noise=noise.Gaussian(0.5))
    scores = []
    for estimate in (marginal, arithmetic):
        torch.manual_seed(1)
        scores.append(estimate(lm, IDS, K=100, length=1))
    assert scores[0].nats == pytest.approx(scores[1].nats, rel=1e-12)
    assert scores[0].stderr == pytest.approx(scores[1].stderr, rel=1e-12)


@pytest.mark.parametrize("name", ESTIMATES)
def test_without_noise_every_estimate_is_exact(name: str) -> None:
    lm = model(noise=noise.Gaussian(0.0))
    score = ESTIMATES[name](lm, IDS, K=25)
    assert score.nats == pytest.approx(perplexity(lm, IDS).nats, rel=1e-12)
    assert score.stderr == pytest.approx(0.0, abs=1e-12)
    assert math.isnan(ESTIMATES[name](lm, IDS, K=1).stderr or 0.0)


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("name", ESTIMATES)
def test_the_standard_error_is_the_spread_over_seeds(name: str, feedback: bool) -> None:
    """Noise is felt over many steps, in particular when fed back: the error must know."""
    lm = model(noise=noise.Gaussian(0.2), feedback=feedback)
    scores = [ESTIMATES[name](lm, IDS, K=40, length=6) for _ in range(60)]
    nats = np.array([score.nats for score in scores])
    variance = np.mean([(score.stderr or math.nan) ** 2 for score in scores])
    # The square of a centred estimate over its variance has mean 1 and variance about 2.
    ratio = (nats - nats.mean()) ** 2 / variance * len(nats) / (len(nats) - 1)
    stats.assert_mean(ratio, 1.0, math.sqrt(2))


def test_a_marginal_that_rests_on_few_samples_has_no_error() -> None:
    lm = model(noise=noise.Gaussian(3.0))
    assert math.isnan(marginal(lm, IDS, K=30, length=100).stderr or 0.0)


def test_in_strong_mode_the_geometric_ensemble_is_the_clean_model() -> None:
    lm = model(noise=noise.Gaussian(0.3), feedback=False, noisy_layers="last")
    score, clean = geometric(lm, IDS, K=5_000), perplexity(lm, IDS)
    assert score.stderr is not None
    stats.assert_mean(np.array([score.nats]), clean.nats, score.stderr)


# What is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"K": 0}, "K must be a whole number of noise samples, 1 or more, got 0"),
        ({"K": 2.5}, "K must be"),
        ({"temperature": 0}, "temperature must be a finite number above 0, got 0"),
        ({"temperature": math.nan}, "got nan"),
        ({"temperature": "1"}, "got '1'"),
        ({"batch_size": 42}, "too few for 42 columns"),
        ({"length": 0}, "length must be a whole number"),
        ({"lm": torch.nn.Linear(1, 1)}, "such as a LanguageModel, got Linear"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    given = {"lm": model(noise=noise.Gaussian(0.5)), "ids": IDS, "K": 2, **arguments}
    with pytest.raises(NoisinError, match=message):
        arithmetic(**given)
    if "K" not in arguments:
        del given["K"]
        with pytest.raises(NoisinError, match=message):
            perplexity(**given)


def test_words_of_another_vocabulary_are_refused() -> None:
    with pytest.raises(NoisinError, match="must lie in 0 ... 6"):
        perplexity(model(), IDS + 1)


@pytest.mark.parametrize("estimate", ESTIMATES.values(), ids=ESTIMATES)
def test_samples_of_a_model_without_noise_are_refused(estimate: Any) -> None:
    """Dropout is off in evaluation, so that all samples would be the one exact score."""
    lm = model(dropout=Dropouts(0.5, 0.5, 0.5))
    for training in (True, False):
        with pytest.raises(InvalidValue, match="got one without noise .dropout is off"):
            estimate(lm.train(training), IDS, 4)
    assert lm.training is False
    noisin.set_noise(lm, noise.Gaussian(0.5))
    assert estimate(lm, IDS, 4) != estimate(lm, IDS, 4)
