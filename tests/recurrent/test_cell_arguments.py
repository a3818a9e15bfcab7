"""What cells, Noisy and unroll refuse, and what they warn of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import noisin
from noisin import noise
from noisin.errors import InvalidType, InvalidValue, Unsupported
from tests.cases import F, H

LAW = noise.Gaussian(0.5)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: noisin.Noisy(nn.LSTMCell, None), InvalidType, "Pass an instance"),
        (lambda: noisin.Noisy(3, None), InvalidType, "got 3"),
        (lambda: noisin.Noisy(nn.LSTM(2, 2), None), InvalidType, "use noisin.LSTM|Use noisin.LSTM"),
        (lambda: noisin.Noisy(nn.LSTMCell(2, 2), 0.5), InvalidType, "noise.Gaussian"),
        (lambda: noisin.Noisy(nn.LSTMCell(2, 2), None, mode="x"), InvalidValue, "mode must be"),
        (lambda: noisin.RNNCell(2, 2, nonlinearity="elu"), InvalidValue, "got 'elu'"),
        (lambda: noisin.GRUCell(2, 2, site="x"), InvalidValue, "site must be"),
        (lambda: noisin.unroll(nn.LSTMCell(2, 2), torch.zeros(0, 1, 2)), InvalidValue, "T > 0"),
        (lambda: noisin.unroll(nn.LSTMCell(2, 2), torch.zeros(2)), InvalidValue, r"got \(2,\)"),
        (
            lambda: noisin.unroll(
                nn.LSTMCell(2, 2), torch.zeros(3, 1, 2), eps=torch.zeros(3, 1, 2)
            ),
            InvalidValue,
            "Wrap it",
        ),
        (
            lambda: noisin.unroll(
                noisin.LSTMCell(2, 2), torch.zeros(3, 1, 2), eps=torch.zeros(2, 1, 2)
            ),
            InvalidValue,
            "3 steps",
        ),
        (lambda: noisin.unroll(nn.LSTMCell, torch.zeros(3, 1, 2)), InvalidType, "Pass an instance"),
        (
            lambda: noisin.unroll(nn.LSTM(2, 2), torch.zeros(3, 1, 2)),
            InvalidType,
            "whole sequences",
        ),
        (
            lambda: noisin.unroll(nn.LSTMCell(2, 2), [1.0]),
            InvalidType,
            "x must be a tensor, got list",
        ),
        (
            lambda: noisin.unroll(noisin.LSTMCell(2, 2), torch.zeros(3, 1, 2), eps=[0.0]),
            InvalidType,
            "got list",
        ),
        (
            lambda: noisin.unroll(
                noisin.LSTMCell(2, 2), torch.zeros(3, 1, 2), eps=torch.tensor(0.0)
            ),
            InvalidValue,
            r"got \(\)",
        ),
        (
            lambda: noisin.LSTMCell(2, 2)(torch.zeros(1, 2), eps=torch.zeros(1, 2, dtype=int)),
            InvalidType,
            "int64",
        ),
        (lambda: noisin.LSTMCell(2, 2)(torch.zeros(1, 2), eps=0.1), InvalidType, "got float"),
        (
            lambda: noisin.RNNCell(2, 3, nonlinearity="sigmoid")(
                torch.zeros(2, 2), torch.zeros(1, 3)
            ),
            InvalidValue,
            r"state of shape \(2, 3\), got \(1, 3\)",
        ),
        (
            lambda: noisin.RNNCell(2, 3, nonlinearity="sigmoid")(torch.zeros(2, 1, 2)),
            InvalidValue,
            "one step",
        ),
        (
            lambda: noisin.GRUCell(2, 3, site="read")(torch.zeros(2, 2), (torch.zeros(2, 3),) * 3),
            InvalidValue,
            "got 3 parts",
        ),
        (
            lambda: noisin.GRUCell(2, 3)(torch.zeros(2, 2), (torch.zeros(2, 3),) * 2),
            InvalidType,
            "got tuple",
        ),
        (
            lambda: noisin.unroll(
                noisin.Noisy(lambda x, s: {"h": x}, None),
                torch.zeros(3, 1, 2),
                eps=torch.zeros(3, 1, 2),
            ),
            InvalidType,
            "got dict. Define methods hidden",
        ),
        (
            lambda: noisin.LSTMCell(2, 2)(torch.zeros(1, 2), eps=torch.zeros(1, 3)),
            InvalidValue,
            r"shape \(1, 2\) of h, got \(1, 3\)",
        ),
        (
            lambda: noisin.LSTMCell(2, 2)(torch.zeros(1, 2), eps=torch.full((1, 2), torch.nan)),
            InvalidValue,
            "NaN",
        ),
        (
            lambda: noisin.LSTMCell(2, 2, noise=noise.Gaussian(1.0), feedback=False)(
                torch.zeros(1, 2)
            ),
            Unsupported,
            r"feedback=False.*unroll\(cell, x\)",
        ),
        (
            lambda: noisin.LSTMCell(2, 2, noise=noise.Gaussian(1.0), share="sequence")(
                torch.zeros(1, 2)
            ),
            Unsupported,
            "share='sequence'",
        ),
    ],
)
def test_bad_input(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: noisin.GRUCell(F, H, noise=noise.Gaussian(1.0)),
        lambda: noisin.Noisy(nn.GRUCell(F, H), noise.Gaussian(1.0)),
        lambda: noisin.Noisy(noisin.GRUCell(F, H), noise.Gaussian(1.0)),
    ],
)
def test_noise_on_a_grus_only_state_warns(make: Any) -> None:
    with pytest.warns(UserWarning, match="multiplies along its carry.*site='read'"):
        make()
    noisin.Noisy(noisin.GRUCell(F, H, site="read"), noise.Gaussian(1.0))
    noisin.GRUCell(F, H)


@pytest.mark.parametrize(
    "make", [lambda: noisin.GRUCell(F, H), lambda: noisin.GRU(F, H, site="state")]
)
def test_it_warns_when_noise_comes_later_and_points_at_the_caller(make: Any) -> None:
    module = make()
    with pytest.warns(UserWarning, match="carry"):
        noisin.set_noise(module, LAW)
    noisin.set_noise(module, noise.Gaussian(0.1))  # a schedule is not told again and again
    for call in (
        lambda: noisin.GRU(F, H, noise=LAW, site="state"),
        lambda: noisin.GRUCell(F, H, noise=LAW),
        lambda: noisin.Noisy(nn.GRUCell(F, H), LAW),
    ):
        with pytest.warns(UserWarning, match="carry") as caught:
            call()
        assert caught[0].filename == __file__
