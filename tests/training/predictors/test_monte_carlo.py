"""Monte Carlo dropout: what is drawn, how long it is held, and how the passes are averaged."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from noisin.data import Batch, Windows
from noisin.errors import InvalidValue, NoisinError, Unsupported
from noisin.models import Dropouts, Loss, MixtureOfSoftmaxes
from noisin.models.steps import GateDropout
from noisin.noise import Gaussian
from noisin.regularizers import WeightDrop, WeightNoise
from noisin.training.predictors import (
    Arithmetic,
    Clean,
    Geometric,
    MonteCarlo,
    evaluate,
    monte_carlo,
)
from tests import stats
from tests.training.predictors.test_dynamic import OwnModel
from tests.training.predictors.toy import IDS, WORDS, model, score

LOCKED = Dropouts(0.3, 0.3, 0.4, 0.2, locked=True)


def seeded(predictor: Any, **options: Any) -> Any:
    torch.manual_seed(3)
    return score(predictor, **options)


def test_without_dropout_it_is_the_ensemble_of_the_noise() -> None:
    lm = model(noise=Gaussian(0.5))
    for batch_size in (1, 3):
        expected = seeded(Arithmetic(lm, 4), batch_size=batch_size)
        assert seeded(MonteCarlo(lm, 4), batch_size=batch_size) == expected


@pytest.mark.parametrize("tau", [1.0, 0.7])
def test_the_ends_of_the_power_mean(tau: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arithmetic and geometric, from all probabilities of all samples at once."""
    lm = model(dropout=Dropouts(0.3, 0.3, 0.4))
    (batch,) = Windows(IDS, 2, 1000).epoch(0)
    K, (T, N) = 5, batch.x.shape
    torch.manual_seed(3)
    with torch.no_grad():
        s = lm.train()(batch.x, samples=K)[0]
    log_k = s.log_softmax(-1).view(T, K, N, -1).transpose(0, 1)
    means = {1.0: log_k.logsumexp(0) - math.log(K), 0.0: log_k.mean(0)}
    for a in (0.3, 1e-7):
        means[a] = (log_k * a).exp().mean(0).log() / a
    for largest in (10, 2**24):
        monkeypatch.setattr(monte_carlo, "LARGEST", largest)
        for a, mean in means.items():
            expected = (mean / tau).log_softmax(-1).gather(-1, batch.target[..., None]).squeeze(-1)
            torch.manual_seed(3)
            found = MonteCarlo(lm, K, temperature=tau, power=a)(batch)[0]
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6 if a else 1e-12)


def test_geometric_power_is_the_geometric_ensemble() -> None:
    lm = model(noise=Gaussian(0.5))
    measured, expected = seeded(MonteCarlo(lm, 30, power=0.0)), seeded(Geometric(lm, 30))
    assert measured.nats == pytest.approx(expected.nats, rel=1e-10)
    assert measured.stderr == pytest.approx(expected.stderr, rel=1e-6)


def test_close_to_one_the_power_mean_is_arithmetic_with_its_error() -> None:
    lm = model(dropout=LOCKED)
    measured, expected = seeded(MonteCarlo(lm, 30, power=1 - 1e-7)), seeded(MonteCarlo(lm, 30))
    assert measured.nats == pytest.approx(expected.nats, rel=1e-5)
    assert measured.stderr == pytest.approx(expected.stderr, rel=1e-3)


@pytest.mark.parametrize("options", [{}, {"power": 0.5}, {"masks": "pass"}], ids=str)
def test_the_standard_error_is_the_spread_over_seeds(options: Any) -> None:
    lm = model(dropout=Dropouts(0.1, 0.0, 0.1, locked=True))
    scores = [score(MonteCarlo(lm, 40, **options), 3, 9) for _ in range(40)]
    nats = np.array([each.nats for each in scores])
    variance = np.mean([(each.stderr or math.nan) ** 2 for each in scores])
    ratio = (nats - nats.mean()) ** 2 / variance * len(nats) / (len(nats) - 1)
    stats.assert_mean(ratio, 1.0, math.sqrt(2))


def test_masks_are_held_for_a_whole_pass() -> None:
    """One pass in windows is one pass over everything with the masks of one window."""
    lm = model(dropout=LOCKED)
    whole = seeded(MonteCarlo(lm, 3), length=1000).nats
    assert seeded(MonteCarlo(lm, 3, masks="pass"), length=7).nats == pytest.approx(whole, rel=1e-10)
    assert seeded(MonteCarlo(lm, 3), length=7).nats != pytest.approx(whole, rel=1e-6)
    other = score(MonteCarlo(lm, 3, masks="pass")).nats
    assert other != pytest.approx(whole, rel=1e-6), "the masks of another pass are others"


COMMON: list[dict[str, Any]] = [
    {"weight_drop": WeightDrop(0.5)},
    {"weight_noise": WeightNoise(0.3)},
    {"dropout": Dropouts(words=0.4, words_shared=True)},
]


@pytest.mark.parametrize("options", COMMON, ids=str)
def test_each_pass_has_the_weights_and_words_of_its_own(options: dict[str, Any]) -> None:
    """What all rows have in common is drawn for each sample, not for its K copies of the rows."""
    lm, K = model(**options), 3
    windows = list(Windows(IDS, 2, 20).epoch(0))
    torch.manual_seed(3)
    measured = evaluate(MonteCarlo(lm, K), windows)
    torch.manual_seed(3)
    states: list[Any] = [None] * K
    total = 0.0
    for batch in windows:
        passes = []
        for k in range(K):
            with torch.no_grad():
                log_p, states[k] = lm.train().log_prob(batch, states[k])
            passes.append(log_p)
        total -= (torch.stack(passes).logsumexp(0) - math.log(K)).sum().item()
    assert measured.nats == pytest.approx(total / measured.count, rel=1e-10)
    assert measured.stderr is not None
    assert measured.stderr > 1e-4
    assert seeded(MonteCarlo(lm, K, power=0.5)).stderr > 1e-4


def test_each_pass_holds_masks_of_its_own() -> None:
    lm = model(weight_drop=WeightDrop(0.5))
    whole = seeded(MonteCarlo(lm, 3), length=1000)
    assert whole.stderr > 1e-4
    held = seeded(MonteCarlo(lm, 3, masks="pass"), length=7)
    assert held.nats == pytest.approx(whole.nats, rel=1e-10)


def test_masks_of_inputs_and_states_are_held_apart() -> None:
    lm = model(gate_dropout=GateDropout(0.3, 0.3, locked=True, site="before"))
    whole = seeded(MonteCarlo(lm, 3), length=1000).nats
    assert seeded(MonteCarlo(lm, 3, masks="pass"), length=7).nats == pytest.approx(whole, rel=1e-10)


def test_a_head_that_is_read_in_parts_has_one_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = model(head=partial(MixtureOfSoftmaxes, experts=2, dropout=0.4))
    whole = seeded(MonteCarlo(lm, 3, power=0.5), length=20)
    monkeypatch.setattr(monte_carlo, "LARGEST", 3 * WORDS * 5)  # five rows at a time
    parts = seeded(MonteCarlo(lm, 3, power=0.5), length=20)
    assert parts.nats == pytest.approx(whole.nats, rel=1e-10)


def test_held_masks_are_let_go() -> None:
    lm = model(dropout=LOCKED).train()
    batch = next(Windows(IDS, 1, 7).epoch(0))
    MonteCarlo(lm, 1, masks="pass")(batch)
    assert not torch.equal(lm.log_prob(batch)[0], lm.log_prob(batch)[0])
    assert all(getattr(m, "_held", None) is None for m in lm.modules())


def test_noise_is_not_held() -> None:
    lm = model(noise=Gaussian(0.5), dropout=Dropouts(output=0.1, locked=True))
    batch = next(Windows(IDS, 1, 7).epoch(0))
    predictor = MonteCarlo(lm, 2, masks="pass")
    first, state = predictor(batch)
    again, _ = predictor(batch, state._replace(samples=None))
    assert not torch.allclose(first, again)


class Normalised(nn.Module):
    """A model of its own with torch's normalisation of batches before noise."""

    def __init__(self) -> None:
        super().__init__()
        self.lm = model(noise=Gaussian(0.5))
        self.norm = nn.BatchNorm1d(WORDS).double()

    def log_prob(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        s, state = self.lm(batch.x, state)
        log_p = self.norm(s.flatten(0, 1)).view_as(s).log_softmax(-1)
        return log_p.gather(-1, batch.target.long().unsqueeze(-1)).squeeze(-1), state

    def loss(self, batch: Batch, state: Any = None) -> Loss:
        log_p, state = self.log_prob(batch, state)
        return Loss(-log_p.mean(), batch.count, state=state)


CELL = {"cell": "batch-norm-lstm", "dropout": LOCKED}


@pytest.mark.parametrize("masks", ["window", "pass"])
@pytest.mark.parametrize(
    "build", [Normalised, lambda: model(**CELL), lambda: model(**CELL, cell_arguments={"t_max": 9})]
)
def test_it_learns_no_statistics_from_what_it_scores(build: Any, masks: Any) -> None:
    lm = build().train()
    for batch in Windows(IDS, 4, 5).epoch(0):
        lm.loss(batch)
    before = {name: tensor.clone() for name, tensor in lm.state_dict().items()}
    score(MonteCarlo(lm, K=3, masks=masks), batch_size=3)
    assert_close(lm.state_dict(), before, rtol=0, atol=0)
    assert all(module.training for module in lm.modules())
    lm.loss(batch)
    assert not all(torch.equal(lm.state_dict()[name], tensor) for name, tensor in before.items())


def test_without_masks_it_normalises_as_the_ensemble_of_the_noise() -> None:
    lm = model(cell="batch-norm-lstm", noise=Gaussian(0.5))
    expected = seeded(Arithmetic(lm, 4), batch_size=3)
    assert seeded(MonteCarlo(lm, 4), batch_size=3) == expected


def test_masks_of_every_step_cannot_be_held() -> None:
    for settings in ({"dropout": Dropouts(0.3)}, {"zoneout": (0.1, 0.1)}):
        lm = model(**settings)
        assert score(MonteCarlo(lm, 2)).count == 82
        with pytest.raises(Unsupported, match="draws a new one for each step or window"):
            score(MonteCarlo(lm, 2, masks="pass"))
        assert all(getattr(m, "_held", None) is None for m in lm.modules())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"K": 0}, "K must be a whole number of noise samples"),
        ({"masks": "step"}, "masks must be 'window' or 'pass', got 'step'"),
        ({"power": -0.5}, "power must be a finite number, 0 or more"),
        ({"power": 2}, r"power must lie in \[0, 1\], got 2"),
        ({"temperature": 0}, "temperature must be a finite number above 0"),
        ({"model": OwnModel(), "power": 0.5}, "other than 1 needs a SequenceModel, got OwnModel"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(NoisinError, match=message):
        MonteCarlo(**{"model": model(dropout=LOCKED), "K": 2, **arguments})


def test_a_model_without_randomness_is_refused() -> None:
    for cell in ("lstm", "highway", "melis-lstm", "layer-norm-lstm"):
        with pytest.raises(InvalidValue, match="got one with neither"):
            score(MonteCarlo(model(cell=cell), 2))


def test_targets_that_are_not_scored_do_not_count() -> None:
    lm = model(dropout=LOCKED)
    batch = next(Windows(IDS, 1, 7).epoch(0))
    none = Batch(batch.x, batch.target, torch.zeros(7, 1, dtype=torch.bool))
    for power in (1.0, 0.5):
        _, state = MonteCarlo(lm, 3, power=power)(none)
        assert torch.equal(state.contributions[0], state.contributions[1])
    assert score(Clean(lm)).stderr is None
