"""Forecasts with the noise on: their samples, quantiles and coverage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import noisin
from noisin import noise, objective
from noisin.analysis.forecasts import coverage
from noisin.errors import NoisinError
from noisin.objective import Forecast, forecast

LAW = noise.Gaussian(0.5)


@pytest.mark.parametrize("training", [True, False])
def test_forecasts_are_those_with_the_noise_on(training: bool) -> None:
    rnn, x = noisin.LSTM(1, 2, noise=LAW).train(training), torch.randn(5, 3, 1)
    torch.manual_seed(3)
    found = forecast(rnn, lambda rnn: rnn(x)[0][-1], K=4)
    assert found.samples.shape == (4, 3, 2)
    assert not found.samples.requires_grad
    torch.manual_seed(3)
    with noisin.noise_on(rnn):
        assert_close(found.samples, torch.stack([rnn(x)[0][-1] for _ in range(4)]))
    assert rnn.training == training
    assert not torch.equal(found.samples[0], found.samples[1])


def test_statistics_are_those_of_numpy() -> None:
    samples, target = torch.randn(50, 4, 3), torch.randn(4, 3)
    found = Forecast(samples)
    levels = [0.05, 0.5, 0.95]
    assert_close(found.mean, samples.mean(0))
    assert_close(found.std, samples.std(0))
    want = np.quantile(samples.double().numpy(), levels, axis=0)
    assert_close(found.quantile(levels).double(), torch.from_numpy(want), atol=1e-5, rtol=0)
    assert_close(found.quantile(0.5), found.quantile([0.5])[0])
    arrays = samples.double().numpy(), target.double().numpy()
    assert found.coverage(target, 0.8) == pytest.approx(coverage(*arrays, 0.8))
    assert Forecast(samples[:1]).std.isnan().all()


def test_the_coverage_of_a_calibrated_forecast_is_the_level() -> None:
    values = torch.randn(201, 2000, generator=torch.Generator().manual_seed(1))
    assert Forecast(values[1:]).coverage(values[0], 0.8) == pytest.approx(0.8, abs=0.06)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: forecast(m, lambda m: m(torch.ones(2, 1, 1))[0], K=0), "K must be a whole"),
        (lambda m: forecast(nn.Linear(2, 2), repr), "Linear contains no module with noise"),
        (lambda m: forecast(m, 5), "fn must be a function of the model, got int"),
        (lambda m: forecast(m, lambda: 1), "fn must be a function of the model"),
        (lambda m: forecast(m, repr), r"fn\(model\)"),
        (lambda m: forecast(5, lambda m: m), "expected a model"),
        (lambda m: forecast(m, lambda m, n=[0]: torch.ones(n.append(0) or len(n))), "of one shape"),
        (lambda m: Forecast(torch.ones(())), "K > 0"),
        (lambda m: Forecast(torch.ones(3)).quantile(1.5), r"in \[0, 1\]"),
        (lambda m: Forecast(torch.ones(3, 2)).coverage(torch.ones(3)), "target of shape"),
    ],
)
def test_bad_calls(call: Any, message: str) -> None:
    with pytest.raises(NoisinError, match=message):
        call(noisin.LSTM(1, 2, noise=LAW))


def test_it_is_exported() -> None:
    assert objective.forecast is forecast
