"""Forecasts: drawn from the model alone, after everything before their origin was read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import noisin
from noisin import noise
from noisin.errors import InvalidType, InvalidValue
from noisin.likelihoods import LIKELIHOODS, SCALED
from noisin.models import Autoregressive, Dense, LearntScale, SequenceModel, Values
from noisin.models.latent import VRNN
from noisin.models.paths import draw
from noisin.tasks import Series
from noisin.training import forecasts
from noisin.training.forecasts import forecast
from tests.stats import assert_mean
from tests.tasks.test_series import T, data


def model_for(task: Series) -> SequenceModel:
    torch.manual_seed(0)
    seen = task.observation
    if seen.likelihood in SCALED:
        head: torch.nn.Module = LearntScale(5, seen.size, SCALED[seen.likelihood]())
    else:
        bias = torch.tensor(seen.bias)
        head = Dense(5, seen.size, LIKELIHOODS[seen.likelihood](), bias=bias)
    assert seen.inputs is not None
    return SequenceModel(Values(seen.inputs), [noisin.LSTM(seen.inputs, 5)], head).eval()


@pytest.mark.parametrize("likelihood", ["poisson", "bernoulli", "gaussian", "student-t"])
def test_shapes_and_what_is_beside_them(likelihood: str) -> None:
    task = Series(data(likelihood, changes=True))
    table = task.data.test[0]  # 5 rows of context, and 8 that are scored
    found = forecast(model_for(task), task, table, length=3, K=7)
    assert found.origins == [5, 8]
    assert found.samples.shape == (7, 2, 3, 2)
    assert np.array_equal(found.observed[1], table.target[8:11])
    assert np.array_equal(found.naive[4][0], table.target[[1, 2, 3]]), "a season of 4 before"
    assert np.isfinite(found.samples).all()
    if likelihood == "poisson":
        assert np.array_equal(found.samples, found.samples.round()), "coverage compares counts"
        assert found.samples.min() >= 0
    score = found.scores(0)
    assert set(score["coverage"]) == {"0.5", "0.8", "0.95"}
    naive = np.abs(found.naive[4][..., 0] - found.observed[..., 0]).mean()
    assert score["naive"] == {"4": pytest.approx(naive)}


def test_the_first_step_follows_the_prediction_of_teacher_forcing() -> None:
    task = Series(data("gaussian", changes=True))
    model, table, K = model_for(task), task.data.test[0], 4000
    found = forecast(model, task, table, length=4, K=K)
    steps = task.steps(table)
    with torch.no_grad():
        s, _ = model(torch.from_numpy(steps.x).unsqueeze(1))
    for m, origin in enumerate(found.origins):
        change = s[origin, 0].double().numpy()
        level = task.read(table.target[origin - 1]) + change
        for i in range(2):
            assert_mean(
                found.samples[:, m, 0, i],
                task.read.undo(level)[i],
                math.sqrt(1.0) * task.read.std[i],
            )


def test_a_forecast_does_not_see_what_comes() -> None:
    task = Series(data("gaussian"))
    model, table = model_for(task), task.data.test[0]
    found = forecast(model, task, table, length=4, K=3).samples
    table.target[9:] += 5.0  # the last origin is 9
    other = forecast(model, task, table, length=4, K=3).samples
    assert np.array_equal(found, other)
    table.target[8] += 5.0  # which it has read
    other = forecast(model, task, table, length=4, K=3).samples
    assert np.array_equal(found[:, 0], other[:, 0])
    assert not np.array_equal(found[:, 1], other[:, 1])


def test_a_step_reads_the_covariates_of_its_own_row() -> None:
    task = Series(data("gaussian"))
    model, table = model_for(task), task.data.test[0]
    found = forecast(model, task, table, length=4, K=3).samples
    table.covariates[7, 1] += 5.0  # of the third step from the first origin, 5
    other = forecast(model, task, table, length=4, K=3).samples
    assert np.array_equal(found[:, 0, :2], other[:, 0, :2])
    assert not np.array_equal(found[:, 0, 2], other[:, 0, 2])
    table.covariates[12, 1] += 5.0  # of the last step of the last forecast
    last = forecast(model, task, table, length=4, K=3).samples
    assert np.array_equal(other[:, 1, :3], last[:, 1, :3])
    assert not np.array_equal(other[:, 1, 3], last[:, 1, 3])


def test_origins_side_by_side_are_those_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an error of almost zero, so that the order of the draws has no effect."""
    task = Series(data("scaled-gaussian"))
    model = model_for(task)
    head = model.head
    assert isinstance(head, LearntScale)
    with torch.no_grad():
        head.weight[2:] = 0.0
        head.bias[2:] = -99.0
    together = forecast(model, task, task.data.test[0], length=2, K=5)
    monkeypatch.setattr(forecasts, "COLUMNS", 1)
    alone = forecast(model, task, task.data.test[0], length=2, K=5)
    np.testing.assert_allclose(together.samples, alone.samples, atol=0.1)
    assert together.origins == alone.origins == [5, 7, 9, 11]


def test_steps_that_are_not_scored_are_left_out() -> None:
    task = Series(data("poisson"))
    model, table = model_for(task), task.data.test[0]
    table.scored[6] = False
    found = forecast(model, task, table, length=4, K=3)
    score = found.scores(0)
    found.observed[0, 1] = 1e9
    assert found.scores(0) == score


def test_the_same_seed_draws_the_same() -> None:
    task = Series(data("poisson"))
    model, table = model_for(task), task.data.test[0]
    draws = [forecast(model, task, table, length=4, K=3, seed=s).samples for s in (1, 1, 2)]
    assert np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


def test_what_cannot_be_forecast() -> None:
    task = Series(data("poisson"))
    with pytest.raises(InvalidValue, match="13 steps, too few for a forecast of 40"):
        forecast(model_for(task), task, task.data.test[0], length=T)
    with pytest.raises(InvalidValue, match="forecast: K must be a whole number"):
        forecast(model_for(task), task, task.data.test[0], length=3, K=0)


def test_a_head_without_a_likelihood() -> None:
    model = SequenceModel(Values(2), [noisin.LSTM(2, 3)], torch.nn.Identity())
    with pytest.raises(InvalidType, match="Identity has no likelihood to draw from"):
        draw(model, torch.zeros(1, 2), 3, lambda drawn: drawn)


@pytest.mark.parametrize("method", ["predict_next", "encode_next"])
def test_a_model_with_a_method_of_its_own_is_asked_by_it(method: str) -> None:
    """With a head that draws values itself, by what that reads."""
    calls = []

    class Own(SequenceModel):
        def predict_next(self, x: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, Any]:
            calls.append("predict_next")
            return super().predict_next(x, state)

        def encode_next(self, x: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, Any, Any]:
            calls.append("encode_next")
            return super().encode_next(x, state)

    heads: dict[str, Any] = {"predict_next": Dense, "encode_next": Autoregressive}
    head = heads[method](3, 2, LIKELIHOODS["bernoulli"]())
    model = Own(Values(2), [noisin.LSTM(2, 3)], head)
    draw(model, torch.zeros(1, 2), 3, lambda drawn: drawn)
    assert calls.count(method) == 3
    assert (calls.count("predict_next") == 0) == (method == "encode_next")


class ReadsWithNoise(SequenceModel):
    """Noise while it reads, and none in its predictions."""

    def encode_next(self, x: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, Any, Any]:
        with noisin.noise_off(self):
            return super().encode_next(x, state)


def test_with_noise_each_path_has_read_the_past_on_its_own() -> None:
    task = Series(data("scaled-gaussian"))
    model = model_for(task)
    assert isinstance(model.head, LearntScale)
    with torch.no_grad():
        model.head.weight[2:] = 0.0
        model.head.bias[2:] = -99.0  # an error of almost zero
    rnn = noisin.LSTM(model.layers[0].input_size, 5, noise=noise.Gaussian(4.0))
    rnn.load_state_dict(model.layers[0].state_dict())
    noisy = ReadsWithNoise(model.encoder, [rnn], model.head).eval()
    table = task.data.test[0]
    clean = forecast(noisy, task, table, length=2, K=6)
    with noisin.noise_on(noisy):
        found = forecast(noisy, task, table, length=2, K=6)
    assert np.ptp(found.samples, 0).mean() > 5 * np.ptp(clean.samples, 0).mean()


def test_the_past_may_be_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Series(data("gaussian"))
    model, table = model_for(task), task.data.test[0]
    whole = forecast(model, task, table, length=4, K=3).samples
    monkeypatch.setattr(forecasts, "ROWS", 2)
    parts = forecast(model, task, table, length=4, K=3).samples
    np.testing.assert_allclose(parts, whole, rtol=1e-5)


def test_forecasts_of_a_stochastic_rnn() -> None:
    task = Series(data("poisson"))
    seen, table = task.observation, task.data.test[0]
    sizes = {"hidden_size": 4, "z_size": 2, "mlp_size": 3, "input_size": seen.inputs}
    model = VRNN(seen.size, LIKELIHOODS["poisson"](), **sizes).eval()
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)  # of the latent variables of the past
        found.append(forecast(model, task, table, length=3, K=7, seed=seed).samples)
    assert found[0].shape == (7, 2, 3, 2)
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
    table.target[8:] += 5  # the last origin is 8
    torch.manual_seed(1)
    other = forecast(model, task, table, length=3, K=7, seed=1).samples
    assert np.array_equal(found[0], other), "a forecast does not see what comes"
