"""The checker finds what theory says of each placement of noise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import noisin
from noisin import analysis, noise
from noisin.errors import InvalidType, InvalidValue
from noisin.regularizers import DropoutLSTMCell, Zoneout

F, H, T = 3, 4, 5
D64 = {"dtype": torch.float64}
LAW = noise.Gaussian(1.0)


def strengthened(module: nn.Module) -> nn.Module:
    """Larger weights, so that a nonlinearity shows."""
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(3)
    return module


class Affine(nn.Module):
    """A recurrence affine in its state, with gates that read the input alone, as minGRU's."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(F, H, **D64), nn.Linear(F, H, **D64)

    def forward(self, x: Tensor, state: Tensor | None) -> Tensor:
        g = self.gate(x).sigmoid()
        old = torch.zeros_like(g) if state is None else state
        return (1 - g) * old + g * self.value(x)


CASES: dict[str, tuple[Any, str]] = {
    "output only": (
        lambda: noisin.LSTM(F, H, noise=LAW, feedback=False, **D64), "strongly unbiased"),
    "output only, last of two layers": (
        lambda: noisin.GRU(F, H, 2, noise=LAW, feedback=False, noisy_layers="last", **D64),
        "strongly unbiased"),
    "output only, every layer": (
        lambda: noisin.RNN(F, H, 2, noise=LAW, feedback=False, **D64), "weakly unbiased"),
    "fed back": (lambda: noisin.RNN(F, H, noise=LAW, **D64), "weakly unbiased"),
    "fed back, additive": (
        lambda: noisin.RNN(F, H, noise=LAW, mode="additive", **D64), "weakly unbiased"),
    "fed back, LSTM": (lambda: noisin.LSTM(F, H, noise=LAW, **D64), "weakly unbiased"),
    "fed back, stack": (lambda: noisin.LSTM(F, H, 2, noise=LAW, **D64), "weakly unbiased"),
    "fed back, reading GRU": (lambda: noisin.GRU(F, H, noise=LAW, **D64), "weakly unbiased"),
    "fed back, both directions": (
        lambda: noisin.RNN(F, H, bidirectional=True, noise=LAW, **D64), "weakly unbiased"),
    "shared and fed back": (
        lambda: noisin.RNN(F, H, noise=LAW, share="sequence", **D64), "biased"),
    "shared and fed back, both directions": (
        lambda: noisin.RNN(F, H, bidirectional=True, noise=LAW, share="sequence", **D64), "biased"),
    "shared and fed back, cell": (
        lambda: noisin.Noisy(nn.RNNCell(F, H, **D64), LAW, share="sequence"), "biased"),
    "dropout on the gates": (
        lambda: DropoutLSTMCell(F, H, p_x=0.5, p_h=0.4, **D64), "biased"),
    "dropout before the gates": (
        lambda: DropoutLSTMCell(F, H, p_x=0.5, site="before", shared=True, **D64), "biased"),
    "torch's dropout between layers": (
        lambda: nn.LSTM(F, H, 2, dropout=0.5, **D64), "biased"),
    "affine, fed back": (lambda: noisin.Noisy(Affine(), LAW), "strongly unbiased"),
    "affine, fed back, additive": (
        lambda: noisin.Noisy(Affine(), LAW, mode="additive"), "strongly unbiased"),
    "shared, output only": (
        lambda: noisin.RNN(F, H, noise=LAW, share="sequence", feedback=False, **D64),
        "strongly unbiased"),
    "batch first": (
        lambda: noisin.RNN(F, H, batch_first=True, noise=LAW, feedback=False, **D64),
        "strongly unbiased"),
    "torch's, batch first, no noise": (
        lambda: nn.LSTM(F, H, batch_first=True, **D64), "strongly unbiased"),
    "rare events": (
        lambda: noisin.RNN(F, 16, noise=noise.Bernoulli(0.99), feedback=False, **D64),
        "strongly unbiased"),
    "rare events, Chi-square": (
        lambda: noisin.RNN(F, 16, noise=noise.ChiSquare(0.02), feedback=False, **D64),
        "strongly unbiased"),
    "noise around zoneout": (
        lambda: noisin.Noisy(Zoneout(nn.LSTMCell(F, H, **D64), 0.3, 0.3), noise.Gaussian(0.3)),
        "weakly unbiased"),
    "noise after dropout between layers": (
        lambda: noisin.LSTM(F, H, 2, dropout=0.5, noise=LAW, feedback=False, noisy_layers="last",
                            **D64), "weakly unbiased"),
    "zoneout": (lambda: Zoneout(nn.RNNCell(F, H, **D64), p_h=0.3), "weakly unbiased"),
    "no noise": (lambda: nn.LSTM(F, H, **D64), "strongly unbiased"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_verdicts(name: str) -> None:
    make, expected = CASES[name]
    module = strengthened(make())
    training = [m.training for m in module.modules()]
    found = analysis.check_unbiased(module, torch.randn(T, F, **D64))
    assert found.verdict == expected, str(found)
    assert found.weak_t.shape == found.strong_t.shape
    assert [m.training for m in module.modules()] == training


@pytest.mark.parametrize("family", noise.FAMILIES.values())
def test_every_family_is_strongly_unbiased_where_it_is_not_fed_back(family: Any) -> None:
    rnn = strengthened(noisin.LSTM(F, H, noise=family.from_variance(0.8), feedback=False, **D64))
    assert analysis.check_unbiased(rnn, torch.randn(T, F, **D64)).strong


def test_a_biased_noise_is_found() -> None:
    rnn = noisin.LSTM(F, H, noise=LAW, feedback=False, **D64)

    class Biased:
        variance = 1.0

        def sample(self, shape: Any, *, like: Tensor, generator: Any = None) -> Tensor:
            return 0.1 + LAW.sample(shape, like=like, generator=generator)

    rnn.noise = Biased()  # behind the back of the check that refuses it
    found = analysis.check_unbiased(rnn, torch.randn(T, F, **D64))
    assert found.verdict == "biased"
    assert "would show a bias" in str(found)


def test_float32_rounding_is_no_bias() -> None:
    rnn = strengthened(noisin.LSTM(F, H, noise=noise.Gaussian(1e-6), feedback=False))
    assert analysis.check_unbiased(rnn, torch.randn(T, F)).verdict == "strongly unbiased"


def test_bad_input() -> None:
    rnn, x = noisin.RNN(F, H, noise=LAW), torch.zeros(5, F)
    for arguments, message in (
        ((rnn, torch.zeros(5, 2, F)), r"\(T, F\) in float32 or float64, got \(5, 2, 3\)"),
        ((rnn, x.bfloat16()), "bfloat16"),
        ((rnn, x, 10), "rows must be a whole number, 1000 or more"),
        ((rnn, x, 1000, 0.0), r"probability in \(0, 1\)"),
        ((nn.LSTM(F, H, bidirectional=True), x), "cannot be run step by step"),
        ((rnn, x, 1000, 1e-6, "layer"), "kind must be"),
    ):
        with pytest.raises(InvalidValue, match=message):
            analysis.check_unbiased(*arguments)
    with pytest.raises(InvalidType, match="expected a model"):
        analysis.check_unbiased(lambda x, state: x, x)

    class Broken(nn.Module):
        def forward(self, x: Tensor, state: Any) -> Tensor:
            return x / 0

    with pytest.raises(InvalidValue, match="NaN or infinity"):
        analysis.check_unbiased(Broken(), x)
