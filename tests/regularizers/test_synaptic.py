"""Weight noise per step has the law of weights that are drawn for every row and step."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from scipy import stats as laws
from torch import Tensor, nn
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.errors import NoisinError
from noisin.models.layers import layer
from noisin.recurrent.cell import KERNEL_CELLS
from noisin.recurrent.cells import ElmanCell
from noisin.recurrent.injection import Injection
from noisin.regularizers import SynapticNoise, WeightNoise, Zoneout
from tests import stats

F, H, STD = 3, 4, 0.3
DRAWS = 20_000
MODES = ("additive", "multiplicative")
CELLS: dict[str, Any] = {
    "tanh": lambda: nn.RNNCell(F, H),
    "relu": lambda: nn.RNNCell(F, H, nonlinearity="relu"),
    "sigmoid": lambda: ElmanCell(F, H, nonlinearity="sigmoid"),
    "lstm": lambda: nn.LSTMCell(F, H),
    "gru": lambda: nn.GRUCell(F, H, bias=False),
}


SPECS = {
    "RNNCell": KERNEL_CELLS["elman-tanh"],
    "ElmanCell": KERNEL_CELLS["elman-sigmoid"],
    "LSTMCell": KERNEL_CELLS["lstm"],
    "GRUCell": KERNEL_CELLS["gru-state"],
}


def make(cell: str) -> Any:
    torch.manual_seed(1)
    return CELLS[cell]().double()


def start(cell: str, rows: int = 1) -> tuple[Tensor, Any]:
    """An input and a state, the same in all rows."""
    torch.manual_seed(2)
    x, h, c = (torch.randn(1, size).double().expand(rows, size) for size in (F, H, H))
    return x, ((h, c) if cell == "lstm" else h)


def parts(state: Any) -> tuple[Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


class Real:
    """The brute force: products with weights that every row draws for itself at every step."""

    w_hr = None

    def __init__(self, cell: Any, mode: str, rows: int, std: float = STD) -> None:
        self.cell, self.mode, self.rows, self.std = cell, mode, rows, std

    def product(self, v: Tensor, name: str) -> Tensor:
        w, bias = (getattr(self.cell, f"{kind}_{name}") for kind in ("weight", "bias"))
        eps = self.std * torch.randn(self.rows, *w.shape, dtype=w.dtype)
        noisy = w + eps if self.mode == "additive" else w * (1 + eps)
        product = torch.einsum("nij,nj->ni", noisy, v)
        return product if bias is None else product + bias

    def recur(self, h: Tensor) -> Tensor:
        return self.product(h, "hh")

    def __call__(self, x: Tensor, state: Any) -> Any:
        step = SPECS[type(self.cell).__name__].step
        assert step is not None
        new = step(self.product(x, "ih"), parts(state), self)
        return new if len(new) > 1 else new[0]


@pytest.mark.parametrize("cell", CELLS)
def test_in_evaluation_and_without_spread_it_is_the_cell(cell: str) -> None:
    inner, (x, state) = make(cell), start(cell, 2)
    noisy = SynapticNoise(inner, STD)
    expected = inner(x, state)
    assert_close(noisy.eval()(x, state), expected, rtol=0, atol=0)
    assert_close(SynapticNoise(inner, 0.0)(x, state), expected, rtol=0, atol=0)
    assert not torch.equal(parts(noisy.train()(x, state))[0], parts(expected)[0])
    torch.manual_seed(3)
    first = parts(noisy(x))
    torch.manual_seed(3)
    assert_close(parts(copy.deepcopy(noisy)(x)), first, rtol=0, atol=0)


@pytest.mark.parametrize("mode", MODES)
def test_the_law_of_an_elman_cell(mode: Any) -> None:
    """Of ours and of real weights: ``tanh`` of the Gaussian that the equation says."""
    cell, (x, h) = make("tanh"), start("tanh", DRAWS)
    v, w = torch.cat([x[0], h[0]]), torch.cat([cell.weight_ih, cell.weight_hh], 1).detach()
    mean = w @ v + (cell.bias_ih + cell.bias_hh).detach()
    spread = STD * (v.norm().expand(H) if mode == "additive" else ((w * v) ** 2).sum(1).sqrt())
    for noisy in (SynapticNoise(cell, STD, mode), Real(cell, mode, DRAWS)):
        found = noisy(x, h).detach()
        for unit in range(H):
            law = laws.norm(float(mean[unit]), float(spread[unit]))
            stats.assert_law(found[:, unit].atanh().numpy(), law.cdf, ulps=10**6)
        a = ((found.atanh() - mean) / spread).numpy()  # no unit tells of another
        stats.assert_mean(a[:, 0] * a[:, 1], 0.0, 1.0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cell", ["sigmoid", "lstm", "gru"])
def test_the_moments_and_the_gradients_of_real_weights(cell: str, mode: Any) -> None:
    """Of two steps: mean and square of each state, and the mean gradients of h_0 and of W."""
    inner, (x, state) = make(cell), start(cell, DRAWS)
    state = tuple(part.clone().requires_grad_() for part in parts(state))
    sums, gradients = [], []
    for noisy in (SynapticNoise(inner, 1.0, mode), Real(inner, mode, DRAWS, std=1.0)):
        given = state if cell == "lstm" else state[0]
        h = torch.stack(parts(noisy(x, noisy(x, given))))
        by_h, by_w = torch.autograd.grad(h[0].sum(), [state[0], inner.weight_hh])
        sums.append(torch.stack([*h, *h**2, by_h]).detach().sum(-1))
        gradients.append(by_w / DRAWS)
    for a, b in zip(*sums, strict=True):
        stats.assert_mean((a - b).numpy(), 0.0, float((a.var() + b.var()).sqrt()))
    assert_close(*gradients, rtol=0, atol=0.1 * float(gradients[1].abs().max()))


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_exists_at_zero(mode: Any) -> None:
    """Where the spread is zero: at the first step, and for an input of zeros."""
    cell = SynapticNoise(make("lstm"), STD, mode)
    x = torch.zeros(5, 2, F, dtype=torch.float64, requires_grad=True)
    noisin.unroll(cell, x)[0].sum().backward()
    gradients = [x.grad, *(p.grad for p in cell.parameters())]
    assert all(g is not None and g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_by_differences(mode: Any) -> None:
    cell, x = SynapticNoise(nn.GRUCell(2, 2).double(), STD, mode), torch.randn(1, 2).double()

    def run(x: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(2)
        h: Tensor = cell(x, x.sin())
        return h

    assert torch.autograd.gradcheck(run, (x.requires_grad_(), *cell.parameters()))


def test_rows_and_steps_have_noise_of_their_own() -> None:
    cell = SynapticNoise(make("relu"), STD)
    x = torch.ones(2, 3, F).double()
    z, _ = noisin.unroll(cell, x)
    assert z.flatten(0, 1).unique(dim=0).shape[0] == 6


def test_it_composes_in_a_layer() -> None:
    """Inside zoneout, and noise around both."""
    settings = {"zoneout": (0.1, 0.2), "weight_noise": WeightNoise(STD, "multiplicative", "step")}
    built = layer("lstm", F, H, injection=Injection(noise.Gaussian(0.5)), **settings)
    zoneout = built.rnn.cell.cell
    assert isinstance(zoneout, Zoneout)
    assert isinstance(zoneout.cell, SynapticNoise)
    assert (zoneout.cell.std, zoneout.cell.mode) == (STD, "multiplicative")
    x = torch.randn(5, 2, F)
    assert built(x)[0].shape == (5, 2, H)
    gru = layer("gru", F, H, weight_noise=WeightNoise(STD, per="step"))
    clean = copy.deepcopy(gru).eval()
    assert not torch.equal(gru(x)[0], gru(x)[0])
    assert torch.equal(clean(x)[0], gru.eval()(x)[0])


def test_bad_input() -> None:
    for wrong in (noisin.LSTMCell(F, H), nn.LSTM(F, H), nn.Linear(F, H), 3):
        with pytest.raises(NoisinError, match="got (LSTMCell|LSTM|Linear|int)"):
            SynapticNoise(wrong, STD)
    with pytest.raises(NoisinError, match="std must be a finite number"):
        SynapticNoise(nn.LSTMCell(F, H), -1.0)
    with pytest.raises(NoisinError, match="mode must be"):
        SynapticNoise(nn.LSTMCell(F, H), 1.0, "sum")
    cell = SynapticNoise(nn.LSTMCell(F, H), STD)
    with pytest.raises(NoisinError, match="expected x with 3 features"):
        cell(torch.zeros(2, F + 1))
    with pytest.raises(NoisinError, match="state"):
        cell(torch.zeros(2, F), torch.zeros(2, H))
