"""Weights drawn for each forward pass: weight drop and weight noise, against given weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from scipy import stats as laws
from torch import Tensor
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.data import Batch
from noisin.errors import NoisinError
from noisin.models import Dropout, LanguageModel
from noisin.models.layers import Layer, layer
from noisin.recurrent.injection import Injection
from noisin.recurrent.names import KERNEL_NAMES
from noisin.regularizers import WeightDrop, WeightNoise
from noisin.regularizers.weights import RandomWeights
from tests import pairwise, stats

T, N, F, H = 5, 3, 4, 6
DROP, NOISE = WeightDrop(0.5), WeightNoise(0.1)
SETTINGS: dict[str, dict[str, Any]] = {
    "drop": {"weight_drop": DROP},
    "drop of all": {"weight_drop": WeightDrop(0.3, inputs=True)},
    "noise": {"weight_noise": NOISE},
    "multiplicative noise": {"weight_noise": WeightNoise(0.3, "multiplicative")},
    "both": {"weight_drop": DROP, "weight_noise": NOISE},
}


def make(cell: str = "lstm", p: float = 0.0, **options: Any) -> Layer:
    torch.manual_seed(0)
    injection = options.pop("injection", Injection())
    return layer(cell, F, H, injection=injection, dropout=Dropout(p), **options).double()


def inputs(**options: Any) -> Tensor:
    return torch.randn(T, N, F, dtype=torch.float64, **options)


def own_weights(ours: Layer) -> dict[str, Tensor]:
    return dict(ours.rnn.named_parameters())


TABLE = pairwise.table(
    KERNEL_NAMES, SETTINGS, ("no noise", True, False), (0.0, 0.4), (False, True),
    where=lambda cell, _name, _feedback, _p, reverted: cell != "elman-sigmoid" or not reverted,
)  # fmt: skip


@pytest.mark.parametrize(("cell", "name", "feedback", "p", "reverted"), TABLE)
def test_a_layer_is_the_stack_with_the_drawn_weights(
    cell: str, name: str, feedback: Any, p: float, reverted: bool
) -> None:
    """In every cell, with noise and recurrent dropout, and in torch's module after revert."""
    law = None if feedback == "no noise" else noise.Gaussian(0.5)
    injection = Injection(law, feedback=feedback is True)
    ours, x = make(cell, p, injection=injection, **SETTINGS[name]), inputs()
    stack = ours.rnn
    if reverted:
        stack = copy.deepcopy(stack)
        noisin.set_noise(stack, None)
        noisin.revert(ours)
    torch.manual_seed(1)
    z, state = ours(x)
    torch.manual_seed(1)
    assert ours.weights is not None
    given: dict[str, Any] = {"weights": ours.weights(own_weights(ours))}
    if p:
        given["read_mask"] = ours.dropout.mask(x, H).unsqueeze(0)
    assert_close((z, state), stack(x, **given))
    assert not torch.equal(z, ours(x)[0])


@pytest.mark.parametrize("name", SETTINGS)
def test_evaluation_and_zero_strength_are_the_plain_layer(name: str) -> None:
    """In the same bits; and training is as before after an evaluation."""
    ours, x = make(**SETTINGS[name]), inputs()
    torch.manual_seed(1)
    first = ours(x)[0]
    assert torch.equal(ours.eval()(x)[0], make()(x)[0])
    assert torch.equal(copy.deepcopy(ours)(x)[0], make()(x)[0])
    ours.train()
    torch.manual_seed(1)
    assert torch.equal(copy.deepcopy(ours)(x)[0], first)
    assert make(weight_drop=WeightDrop(0.0), weight_noise=WeightNoise(0.0)).weights is None
    assert not RandomWeights(WeightDrop(0.0), WeightNoise(0.0)).acts
    assert RandomWeights(DROP).eval()(own_weights(ours)) == {}
    keys = list(make().state_dict())
    assert list(ours.state_dict()) == keys


@pytest.mark.parametrize("all_weights", [False, True])
def test_dropped_weights_and_their_mean(all_weights: bool) -> None:
    w = {f"{name}_l0": torch.ones(400, 300) for name in ("weight_ih", "weight_hh", "bias_hh")}
    drawn = RandomWeights(WeightDrop(0.3, all_weights))(w)
    assert list(drawn) == (["weight_ih_l0"] if all_weights else []) + ["weight_hh_l0"]
    for value in drawn.values():
        assert_close(value.unique(), torch.tensor([0.0, 1 / 0.7]))
        stats.assert_mean(value.numpy(), 1.0, (0.3 / 0.7) ** 0.5)


@pytest.mark.parametrize("mode", ["additive", "multiplicative"])
def test_the_law_of_weight_noise(mode: Any) -> None:
    w = {f"{name}_l0": torch.randn(40, 50).double() for name in ("weight_ih", "weight_hh", "bias")}
    drawn = RandomWeights(noise=WeightNoise(0.2, mode))(w)
    assert list(drawn) == ["weight_ih_l0", "weight_hh_l0"]
    for name, value in drawn.items():
        eps = value - w[name] if mode == "additive" else value / w[name] - 1
        stats.assert_law(eps.flatten().numpy(), laws.norm(0, 0.2).cdf, ulps=64)


def test_a_weight_with_noise_that_is_dropped_is_zero() -> None:
    drawn = RandomWeights(DROP, NOISE)({"weight_hh_l0": torch.ones(50, 50)})["weight_hh_l0"]
    assert 0.3 < (drawn == 0).float().mean() < 0.7
    assert drawn[drawn != 0].unique().numel() > 100


@pytest.mark.parametrize("name", SETTINGS)
def test_all_rows_of_a_window_share_the_weights(name: str) -> None:
    ours, x = make(**SETTINGS[name]), inputs()
    z, _ = ours(x[:, :1].expand(T, N, F))
    assert_close(z[:, :1].expand(T, N, H), z)


@pytest.mark.parametrize("name", ["both", "multiplicative noise"])
def test_gradients_are_those_of_the_parameters(name: str) -> None:
    injection = Injection(noise.Gaussian(0.3))
    ours = layer("lstm", 2, 2, injection=injection, **SETTINGS[name]).double()
    x = torch.randn(2, 1, 2, dtype=torch.float64, requires_grad=True)

    def run(x: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(2)
        return ours(x)[0]

    assert torch.autograd.gradcheck(run, (x, *ours.parameters()))


def test_a_dropped_weight_has_no_gradient() -> None:
    ours = make(weight_drop=DROP)
    torch.manual_seed(2)
    ours(inputs())[0].sin().sum().backward()
    torch.manual_seed(2)
    inputs()
    kept = ours.weights(own_weights(ours))["weight_hh_l0"] != 0
    assert torch.equal(ours.rnn.weight_hh_l0.grad != 0, kept)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_language_model_learns_with_it(name: str) -> None:
    torch.manual_seed(3)
    lm = LanguageModel(11, hidden_size=H, noise=noise.Gaussian(0.3), **SETTINGS[name])
    words = torch.randint(11, (T + 1, N))
    batch, optimizer = Batch(words[:-1], words[1:]), torch.optim.SGD(lm.parameters(), lr=1.0)
    before, _ = lm.eval().log_prob(batch)
    lm.train()
    for _ in range(30):
        optimizer.zero_grad()
        lm.loss(batch).mean.backward()
        optimizer.step()
    assert lm.eval().log_prob(batch)[0].mean() > before.mean() + 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight_drop": 0.5}, r"weight_drop must be a WeightDrop, got float. Pass, .*\(0.1\)"),
        ({"weight_noise": WeightNoise}, "weight_noise must be a WeightNoise, got the class"),
        ({"weight_drop": DROP, "cell": "highway"}, "runs step by step because of its cell"),
        ({"weight_noise": NOISE, "gate_dropout": (0.1, 0.0)}, "Use one or the other"),
        ({"weight_drop": DROP, "weight_noise": WeightNoise(0.1, per="step")}, "step by step"),
        ({"weight_noise": WeightNoise(0.1, per="step"), "p": 0.5}, "dropout.recurrent = 0"),
        ({"weight_noise": WeightNoise(0.1, per="step"), "gate_dropout": (0.1, 0.1)},
         "equations of torch's RNNCell, LSTMCell or GRUCell, got DropoutLSTMCell"),
        ({"weight_noise": WeightNoise(0.1, per="step"), "cell": "gru",
          "injection": Injection(noise.Gaussian(0.1))}, "Use site='state'"),
    ],
)  # fmt: skip
def test_what_cannot_be_combined_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(NoisinError, match=message):
        make(**settings)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: WeightDrop(1.0), r"WeightDrop: p is a probability and must lie in \[0, 1\)"),
        (lambda: WeightDrop(0.5, 1), "WeightDrop: inputs must be True or False, got 1"),
        (lambda: WeightNoise(-0.1), "WeightNoise: std must be a finite number, 0 or more"),
        (lambda: WeightNoise(float("nan")), "WeightNoise: std must be a finite number"),
        (lambda: WeightNoise(0.1, "sum"), "mode must be 'additive' or 'multiplicative'"),
        (lambda: WeightNoise(0.1, per="row"), "per must be 'sequence' or 'step', got 'row'"),
        (lambda: RandomWeights(DROP, generator=3), "generator"),
    ],
)
def test_bad_input(wrong: Any, message: str) -> None:
    with pytest.raises(NoisinError, match=message):
        wrong()
