"""The checker finds what theory says of each placement of noise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import noisin
from noisin import analysis, noise
from noisin.errors import InvalidType, InvalidValue
from noisin.recurrent import functional, kernels
from noisin.recurrent.kernels import eager, native
from noisin.recurrent.stack import NoisyStack
from noisin.regularizers import (
    BatchNormLSTMCell,
    DropoutLSTMCell,
    HighwayCell,
    UpdateDropoutGRUCell,
    UpdateDropoutLSTMCell,
    Zoneout,
)

F, H, T = 3, 4, 5
D64: dict[str, Any] = {"dtype": torch.float64}
LAW = noise.Gaussian(1.0)


def strengthened(module: nn.Module) -> nn.Module:
    """Larger weights, so that a nonlinearity shows."""
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(3)
    return module


def transforming(cell: HighwayCell) -> HighwayCell:
    """Without the initial biases, by which it mostly copies its state, and so the noise."""
    for bias in cell.biases:
        nn.init.zeros_(bias)
    return cell.double()


class Curved(noisin.MinGRUCell):
    """The same through a nonlinearity."""

    def forward(self, x: Any, state: Tensor | None = None) -> Tensor:
        return super().forward(x, state).tanh()


CASES: dict[str, tuple[Any, str]] = {
    "output only": (
        lambda: noisin.LSTM(F, H, noise=LAW, feedback=False, **D64), "no bias found"),
    "output only, last of two layers": (
        lambda: noisin.GRU(F, H, 2, noise=LAW, feedback=False, noisy_layers="last", **D64),
        "no bias found"),
    "output only, every layer": (
        lambda: noisin.RNN(F, H, 2, noise=LAW, feedback=False, **D64), "no weak bias found"),
    "fed back": (lambda: noisin.RNN(F, H, noise=LAW, **D64), "no weak bias found"),
    "fed back, additive": (
        lambda: noisin.RNN(F, H, noise=LAW, mode="additive", **D64), "no weak bias found"),
    "fed back, LSTM": (lambda: noisin.LSTM(F, H, noise=LAW, **D64), "no weak bias found"),
    "fed back, stack": (lambda: noisin.LSTM(F, H, 2, noise=LAW, **D64), "no weak bias found"),
    "fed back, reading GRU": (lambda: noisin.GRU(F, H, noise=LAW, **D64), "no weak bias found"),
    "fed back, sigmoid": (
        lambda: noisin.RNN(F, H, nonlinearity="sigmoid", noise=LAW, **D64), "no weak bias found"),
    "fed back, projected": (
        lambda: noisin.LSTM(F, H, 2, proj_size=2, noise=LAW, **D64), "no weak bias found"),
    "fed back, stack of GRUs in both directions": (
        lambda: noisin.GRU(F, H, 2, bidirectional=True, noise=LAW, **D64), "no weak bias found"),
    "fed back, stack with dropout": (
        lambda: noisin.LSTM(F, H, 3, dropout=0.3, noise=LAW, **D64), "no weak bias found"),
    "fed back, first layer only": (
        lambda: noisin.LSTM(F, H, 2, noise=[LAW, None], **D64), "no weak bias found"),
    "output only, sigmoid, both directions": (
        lambda: noisin.RNN(F, H, 2, nonlinearity="sigmoid", bidirectional=True, noise=LAW,
                           feedback=False, noisy_layers="last", **D64), "no bias found"),
    "output only, cell": (
        lambda: noisin.LSTMCell(F, H, noise=LAW, feedback=False, **D64), "no bias found"),
    "fed back, cell of a GRU that reads": (
        lambda: noisin.GRUCell(F, H, noise=LAW, site="read", **D64), "no weak bias found"),
    "noise around noise": (
        lambda: noisin.Noisy(noisin.LSTMCell(F, H, noise=LAW, **D64), LAW), "no weak bias found"),
    "dropout between layers, noise off": (
        lambda: noisin.LSTM(F, H, 2, dropout=0.5, **D64), "biased"),
    "fed back, both directions": (
        lambda: noisin.RNN(F, H, bidirectional=True, noise=LAW, **D64), "no weak bias found"),
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
    "affine, fed back": (
        lambda: noisin.Noisy(noisin.MinGRUCell(F, H).double(), LAW), "no bias found"),
    "affine, fed back, additive": (
        lambda: noisin.Noisy(noisin.MinLSTMCell(F, H).double(), LAW, mode="additive"),
        "no bias found"),
    "affine, then curved, fed back": (
        lambda: noisin.Noisy(Curved(F, H).double(), LAW), "no weak bias found"),
    "scan, increment": (lambda: noisin.MinGRU(F, H, noise=LAW).double(), "no bias found"),
    "scan, output": (
        lambda: noisin.MinLSTM(F, H, noise=LAW, site="output").double(), "no bias found"),
    "scan, state": (
        lambda: noisin.MinGRU(F, H, noise=noise.Gaussian(0.1), site="state").double(),
        "no bias found"),
    "scan, shared, state": (
        lambda: noisin.MinGRU(
            F, H, noise=noise.Gaussian(0.5), site="state", share="sequence").double(), "biased"),
    "shared, output only": (
        lambda: noisin.RNN(F, H, noise=LAW, share="sequence", feedback=False, **D64),
        "no bias found"),
    "batch first": (
        lambda: noisin.RNN(F, H, batch_first=True, noise=LAW, feedback=False, **D64),
        "no bias found"),
    "torch's, batch first, no noise": (
        lambda: nn.LSTM(F, H, batch_first=True, **D64), "no bias found"),
    "rare events": (
        lambda: noisin.RNN(F, 16, noise=noise.Bernoulli(0.99), feedback=False, **D64),
        "no bias found"),
    "rare events, Chi-square": (
        lambda: noisin.RNN(F, 16, noise=noise.ChiSquare(0.02), feedback=False, **D64),
        "no bias found"),
    "noise around zoneout": (
        lambda: noisin.Noisy(Zoneout(nn.LSTMCell(F, H, **D64), 0.1, 0.1), LAW),
        "no weak bias found"),
    "noise after dropout between layers": (
        lambda: noisin.LSTM(F, H, 2, dropout=0.5, noise=LAW, feedback=False, noisy_layers="last",
                            **D64), "no weak bias found"),
    "zoneout": (lambda: Zoneout(nn.RNNCell(F, H, **D64), p_h=0.3), "no weak bias found"),
    "no noise": (lambda: nn.LSTM(F, H, **D64), "no bias found"),
    "noise around a highway": (
        lambda: noisin.Noisy(transforming(HighwayCell(F, H, depth=2, p_h=0.3)), LAW),
        "no weak bias found"),
    "noise around locked gates": (
        lambda: noisin.Noisy(DropoutLSTMCell(F, H, p_x=0.3, p_h=0.3, locked=True, **D64), LAW),
        "no weak bias found"),
    "noise around batch statistics": (
        lambda: noisin.Noisy(BatchNormLSTMCell(F, H).double(), LAW), "no weak bias found"),
    "updates of a GRU": (lambda: UpdateDropoutGRUCell(F, H, p=0.3).double(), "no weak bias found"),
    "updates of a GRU, locked": (
        lambda: UpdateDropoutGRUCell(F, H, p=0.3, locked_update=True).double(), "biased"),
    "updates of an LSTM": (lambda: UpdateDropoutLSTMCell(F, H, p=0.3).double(), "biased"),
    "a highway": (lambda: transforming(HighwayCell(F, H, depth=2, p_h=0.3)), "biased"),
    "locked gates": (
        lambda: DropoutLSTMCell(F, H, p_x=0.3, p_h=0.3, site="before", locked=True, **D64),
        "biased"),
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

    rnn.injection = rnn.injection.with_unchecked_noise(Biased())  # any other way refuses it
    found = analysis.check_unbiased(rnn, torch.randn(T, F, **D64))
    assert found.verdict == "biased"
    assert "would show a bias" in str(found)


@pytest.mark.parametrize(("size", "verdict"), [(1.4, "biased"), (0.4, "no bias found")])
def test_the_smallest_bias_that_is_found(size: float, verdict: str) -> None:
    """A shift well above it is found, and one well below it is not: four standard errors each."""
    rnn = noisin.LSTM(F, H, noise=LAW, mode="additive", feedback=False, **D64)
    x = torch.randn(T, F, **D64)
    before = analysis.check_unbiased(rnn, x)
    assert "at this power" in str(before)

    class Shifted:
        variance = LAW.variance

        def sample(self, shape: Any, *, like: Tensor, generator: Any = None) -> Tensor:
            shift = size * before.smallest_bias
            return shift + LAW.sample(shape, like=like, generator=generator)

    rnn.injection = rnn.injection.with_unchecked_noise(Shifted())
    assert analysis.check_unbiased(rnn, x).verdict == verdict


def off_centre(h: Tensor, eps: Tensor, mode: str) -> Tensor:
    """An injection that is not unbiased: its mean is a quarter too large."""
    return h + 0.25 + eps if mode == "additive" else h * (1.25 + eps)


MODULES: dict[str, Any] = {
    "rnn": lambda **k: noisin.RNN(F, H, **k),
    "sigmoid": lambda **k: noisin.RNN(F, H, nonlinearity="sigmoid", **k),
    "stack with dropout": lambda **k: noisin.LSTM(F, H, 2, dropout=0.3, **k),
    "projected": lambda **k: noisin.LSTM(F, H, proj_size=2, **k),
    "gru, both directions": lambda **k: noisin.GRU(F, H, bidirectional=True, **k),
    "cell": lambda **k: noisin.LSTMCell(F, H, **k),
}


@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_a_biased_injection_is_found(
    name: str, feedback: bool, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = MODULES[name](noise=LAW, mode=mode, feedback=feedback, **D64)
    x = torch.randn(T, F, **D64)
    with kernels.using("reference"):
        assert analysis.check_unbiased(module, x, rows=2000).weak
        monkeypatch.setattr(functional, "inject", off_centre)
        assert analysis.check_unbiased(module, x, rows=2000).verdict == "biased"


@pytest.mark.parametrize(("kernel", "recurrence"), [("eager", eager), ("c", native)])
@pytest.mark.parametrize("cell", [noisin.RNN, noisin.LSTM, noisin.GRU])
def test_a_biased_kernel_is_found(
    cell: Any, kernel: str, recurrence: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kernel injects noise by itself, so the module's own forward pass must be judged."""
    module, x = cell(F, H, noise=LAW, **D64), torch.randn(T, F, **D64)
    with kernels.using(kernel):
        assert analysis.check_unbiased(module, x, rows=2000).weak
        forward = recurrence.forward

        def broken(plan: Any, gates: Any, bias: Any, w_hh: Any, w_hr: Any, eps: Tensor,
                   *rest: Any) -> Any:  # fmt: skip
            return forward(plan, gates, bias, w_hh, w_hr, eps + 0.25, *rest)

        monkeypatch.setattr(recurrence, "forward", broken)
        if kernels.kernel_for(x, x, (x,), functional.Weights(x, x)) == kernel:
            assert analysis.check_unbiased(module, x, rows=2000).verdict == "biased"
        else:
            assert kernel == "c", "only the C kernel may be missing"


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_one_biased_layer_of_a_stack_is_found(layer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stack, x = noisin.RNN(F, H, 3, noise=LAW, **D64), torch.randn(T, F, **D64)
    emit = NoisyStack._emit

    def broken(self: Any, first: int, last: int, *rest: Any) -> Any:
        z, final = emit(self, first, last, *rest)
        return (1.25 * z if last == layer else z), final

    monkeypatch.setattr(NoisyStack, "_emit", broken)
    assert analysis.check_unbiased(stack, x, rows=2000).verdict == "biased"


def test_noise_that_is_not_fed_back_as_declared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recurrence must read the z that was emitted."""

    def forgetful(transition: Any, eps: Any, mode: Any, *_: Any) -> Any:
        def step(t: int, x: Tensor, state: Any) -> Any:
            h, *rest = transition(x, state)
            return functional.inject(h, eps[t], mode), (h, *rest)

        return step

    rnn = strengthened(noisin.RNN(F, H, noise=LAW, mode="additive", **D64))
    monkeypatch.setattr(functional, "noisy", forgetful)
    with kernels.using("reference"):
        assert not analysis.check_unbiased(rnn, torch.randn(T, F, **D64)).weak


def test_the_check_leaves_the_module_and_its_randomness_as_they_are() -> None:
    stack = noisin.LSTM(F, H, 2, dropout=0.5, noise=LAW, **D64)
    cell = noisin.Noisy(Zoneout(nn.LSTMCell(F, H, **D64), 0.3, 0.3), LAW)
    for module in (stack, cell):
        before = set(vars(module))
        torch.manual_seed(1)
        analysis.check_unbiased(module, torch.ones(T, F, **D64), rows=1000)
        assert set(vars(module)) == before
        drawn = torch.rand(3)
        torch.manual_seed(1)
        with torch.no_grad():
            many = torch.ones(T, 1000, F, **D64)
            module(many) if module is stack else noisin.unroll(module, many)
        assert torch.equal(torch.rand(3), drawn), "the stream is where one forward pass leaves it"


def test_the_check_learns_no_statistics() -> None:
    cell = noisin.Noisy(BatchNormLSTMCell(2, 3, t_max=2), noise.Gaussian(0.5)).double()
    before = {name: buffer.clone() for name, buffer in cell.named_buffers()}
    assert analysis.check_unbiased(cell, torch.randn(4, 2).double(), 2000).weak
    assert before
    torch.testing.assert_close(dict(cell.named_buffers()), before, rtol=0, atol=0)


def test_float32_rounding_is_no_bias() -> None:
    rnn = strengthened(noisin.LSTM(F, H, noise=noise.Gaussian(1e-6), feedback=False))
    assert analysis.check_unbiased(rnn, torch.randn(T, F)).verdict == "no bias found"


def test_bad_input() -> None:
    rnn, x = noisin.RNN(F, H, noise=LAW), torch.zeros(5, F)
    for arguments, message in (
        ((rnn, torch.zeros(5, 2, F)), r"\(T, F\) in float32 or float64, got \(5, 2, 3\)"),
        ((rnn, x.bfloat16()), "bfloat16"),
        ((rnn, x, 10), "rows must be a whole number, 1000 or more"),
        ((rnn, x, 1000, 0.0), r"probability in \(0, 1\)"),
        ((nn.LSTM(F, H, bidirectional=True), x), "without noise cannot be run step by step"),
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
