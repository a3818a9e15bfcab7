"""What noisin.RNN, LSTM and GRU take, what they refuse, and what they say of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import noisin
from noisin import noise
from noisin.errors import InvalidType, InvalidValue
from noisin.recurrent.injection import Injection
from tests.cases import F, H


def test_signature_is_torchs_plus_keywords() -> None:
    positional = noisin.RNN(F, H, 2, "relu", False, True, 0.1, True)
    theirs = nn.RNN(F, H, 2, "relu", False, True, 0.1, True)
    for name in ("num_layers", "nonlinearity", "bias", "batch_first", "dropout", "bidirectional"):
        assert getattr(positional, name) == getattr(theirs, name)
    lstm = noisin.LSTM(F, H, 2, False, True, 0.1, True, 2)
    assert (lstm.num_layers, lstm.bias, lstm.proj_size) == (2, False, 2)
    assert isinstance(lstm, nn.LSTM)
    with pytest.raises(TypeError):
        noisin.LSTM(F, H, 2, False, True, 0.1, True, 2, None, None, noise.Gaussian(1.0))


def test_repr_shows_the_noise() -> None:
    rnn = noisin.GRU(3, 4, noise=noise.Gaussian(0.5), share="sequence", feedback=False)
    assert repr(rnn) == (
        "GRU(3, 4, noise=Gaussian(gamma=0.5), mode='multiplicative', feedback=False, "
        "share='sequence', noisy_layers='all', site='read')"
    )


def test_a_gru_with_noise_on_its_state_warns() -> None:
    with pytest.warns(UserWarning, match=r"grows by u²\(1 \+ variance\) a step.*site='read'"):
        noisin.GRU(F, H, noise=noise.Gaussian(1.1), site="state")
    noisin.GRU(F, H, noise=noise.Gaussian(1.1), site="state", feedback=False)  # no carry, no growth
    noisin.GRU(F, H, site="state")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"mode": "sum"}, InvalidValue, "mode must be 'multiplicative' or 'additive', got 'sum'"),
        ({"feedback": "no"}, InvalidValue, "feedback must be True or False, got 'no'"),
        ({"feedback": 1}, InvalidValue, "feedback must be True or False, got 1"),
        (
            {"noisy_layers": "first"},
            InvalidValue,
            "must be 'all' or 'last', .*'first'",
        ),
        ({"noisy_layers": "none"}, InvalidValue, "must be 'all' or 'last', .*'none'"),
        ({"noisy_layers": [True]}, InvalidValue, r"such as \[0, 1\], got \[True\]"),
        ({"noisy_layers": [0, 2]}, InvalidValue, r"must be in 0 ... 1, .* got \[0, 2\]"),
        ({"share": "batch"}, InvalidValue, "share must be 'step' or 'sequence'"),
        ({"generator": 3}, InvalidType, r"Generator\(\).manual_seed\(3\)"),
        ({"noise": noise.Gaussian}, InvalidType, "Pass an instance"),
        ({"noise": 0.5}, InvalidType, "noise.Gaussian"),
        ({"noise": [noise.Gaussian(1.0)]}, InvalidValue, r"needs 2 entries \(num_layers\), got 1"),
        ({"noise": [noise.Gaussian(1.0), 3]}, InvalidType, "got 3"),
        ({"nonlinearity": "gelu"}, InvalidValue, "'tanh' or 'relu' or 'sigmoid', got 'gelu'"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        noisin.RNN(F, H, num_layers=2, **arguments)


def test_bad_site() -> None:
    with pytest.raises(InvalidValue, match="site must be 'read' or 'state', got 'carry'"):
        noisin.GRU(F, H, site="carry")


@pytest.mark.parametrize(
    ("x", "hx", "eps", "message"),
    [
        (
            (5, 2, F),
            None,
            (2, 5, 3, H),
            r"expected eps of shape \(2, 5, 2, 4\), got \(2, 5, 3, 4\)",
        ),
        ((5, 2, F), None, (2, 2, 5, H), "whatever batch_first is"),
        ((5, F), None, (2, 5, 1, H), r"expected eps of shape \(2, 5, 4\)"),
        (
            (5, 2, F),
            (2, 3, H),
            None,
            r"expected an initial state of shape \(2, 2, 4\), got \(2, 3, 4\)",
        ),
        ((5, F), (2, 1, H), None, r"shape \(2, 4\), got \(2, 1, 4\)"),
        ((5, 2, F + 1), None, None, "Expected 3, got 4"),
        ((0, 2, F), None, None, "at least one time step"),
        ((5, 2, F, 1), None, None, "2 dimensions .* or 3"),
    ],
)
def test_bad_shapes(x: Any, hx: Any, eps: Any, message: str) -> None:
    rnn = noisin.LSTM(F, H, num_layers=2, noise=noise.Gaussian(1.0))
    state = None if hx is None else (torch.zeros(hx), torch.zeros(hx))
    given_eps = None if eps is None else torch.zeros(eps)
    with pytest.raises((InvalidValue, RuntimeError), match=message):
        rnn(torch.zeros(x), state, eps=given_eps)


def test_bad_values() -> None:
    rnn = noisin.LSTM(F, H, noise=noise.Gaussian(1.0))
    x = torch.zeros(5, 2, F)
    with pytest.raises(InvalidType, match=r"a tuple \(h_0, c_0\) of tensors, got Tensor"):
        rnn(x, torch.zeros(1, 2, H))
    with pytest.raises(InvalidType, match="a tensor h_0, got tuple"):
        noisin.GRU(F, H, noise=noise.Gaussian(1.0))(x, (torch.zeros(1, 2, H),))
    with pytest.raises(InvalidValue, match="NaN or infinity"):
        rnn(x, eps=torch.full((1, 5, 2, H), torch.nan))
    with pytest.raises(
        InvalidType, match=r"floating-point tensor of centred noise, got a tensor of"
    ):
        rnn(x, eps=torch.zeros(1, 5, 2, H, dtype=torch.int64))
    with pytest.raises(InvalidType, match="got list"):
        rnn(x, eps=[0.0])
    with pytest.raises(ValueError, match="dtype"):
        rnn(x.double())


@pytest.mark.parametrize("x", [[1.0, 2.0], np.zeros((5, 2, F))])
def test_an_input_that_is_no_tensor(x: Any) -> None:
    with pytest.raises(InvalidType, match="expected a tensor or a PackedSequence, got"):
        noisin.LSTM(F, H, noise=noise.Gaussian(1.0))(x)


def test_a_state_of_another_dtype() -> None:
    h = torch.zeros(1, 2, H)
    for wrong in (h.double(), h.long()):
        with pytest.raises(InvalidType, match="expected an initial state of torch.float32"):
            noisin.GRU(F, H, noise=noise.Gaussian(1.0))(torch.zeros(5, 2, F), wrong)


def test_noise_on_some_layers_by_number() -> None:
    rnn = noisin.LSTM(F, H, 3, noise=noise.Gaussian(0.5), noisy_layers=[2, 0])
    assert rnn.noisy_layers == (0, 2)
    eps = rnn.sample_eps(torch.zeros(5, 2, F))
    assert [bool(layer.any()) for layer in eps] == [True, False, True]
    clean = noisin.LSTM(F, H, noise=noise.Gaussian(0.5), noisy_layers=())
    noisin.set_noise(clean, noise.Gaussian(0.9))
    x = torch.randn(5, 2, F)
    assert torch.equal(clean(x)[0], clean(x)[0])


def test_settings_are_attributes_that_can_be_changed_and_are_checked() -> None:
    rnn = noisin.GRU(F, H, 2, noise=noise.Gaussian(0.5))
    rnn.noise, rnn.noise_mode, rnn.feedback = noise.Laplace(0.1), "additive", False
    rnn.share, rnn.noisy_layers, rnn.site = "sequence", "last", "state"
    generator = rnn.generator = torch.Generator()
    assert rnn.injection == Injection(
        noise.Laplace(0.1), "additive", False, "last", "sequence", "state", generator
    )
    for name, wrong in (("noise", 0.5), ("noise", [None]), ("noisy_layers", [2]), ("share", "x")):
        with pytest.raises(noisin.errors.NoisinError):
            setattr(rnn, name, wrong)
    assert rnn.noise == noise.Laplace(0.1)
