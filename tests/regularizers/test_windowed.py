"""What all cells that see a window have in common: one contract over a list of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

import noisin
from noisin import noise, regularizers
from noisin.errors import InvalidType, InvalidValue
from noisin.regularizers.windowed import WindowCell
from tests import stats

T, N, F, H = 4, 3, 2, 3

CELLS: dict[str, Callable[..., WindowCell]] = {
    "highway": lambda *a, **k: regularizers.HighwayCell(*a, depth=3, **k),
    "update-lstm": lambda *a, **k: regularizers.UpdateDropoutLSTMCell(*a, **k),
    "update-gru": lambda *a, **k: regularizers.UpdateDropoutGRUCell(*a, **k),
    **{
        gates: lambda *a, gates=gates, **k: regularizers.MelisLSTMCell(*a, gates=gates, **k)
        for gates in ("capped", "tied", "untied")
    },
    **{
        f"{kind.__name__}-{scope}": lambda *a, k=kind, s=scope, **o: k(*a, scope=s, **o)
        for kind in (regularizers.LayerNormLSTMCell, regularizers.LayerNormGRUCell)
        for scope in ("all", "gate")
    },
    "batch-norm": lambda *a, **k: regularizers.BatchNormLSTMCell(*a, t_max=2, **k),
    "mogrifier": lambda *a, **k: regularizers.MogrifierLSTMCell(*a, **k),
    "mogrifier-low-rank": lambda *a, **k: regularizers.MogrifierLSTMCell(*a, rank=1, **k),
}  # fmt: skip


def make(name: str, **options: Any) -> WindowCell:
    torch.manual_seed(1)
    cell = CELLS[name](F, H, **options).double()
    with torch.no_grad():  # all parameters matter
        for parameter in cell.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return cell


def inputs() -> Tensor:
    return torch.randn(T, N, F, generator=torch.Generator().manual_seed(2)).double()


def hidden(state: Any) -> Tensor:
    return state[0] if isinstance(state, tuple) else state


@pytest.mark.parametrize("name", CELLS)
def test_a_window_is_its_steps(name: str) -> None:
    """One product for all steps, or one per step; and without a batch."""
    cell, x = make(name).eval(), inputs()
    z, last = noisin.unroll(cell, x)
    state, row = None, None
    for t in range(T):
        state, row = cell(x[t], state), cell(x[t, 0], row)
        assert_close(z[t], hidden(state))
        assert_close(z[t, 0], hidden(row))
    assert_close(last, state)


@pytest.mark.parametrize("name", CELLS)
def test_gradients(name: str) -> None:
    """While training, with locked masks that are the same at every call."""
    cell, x = make(name, p_h=0.3), inputs().requires_grad_()
    count = 1 + cell.memory
    start = [torch.randn(N, H).double().requires_grad_() for _ in range(count)]

    def function(x: Tensor, *others: Tensor) -> Tensor:
        torch.manual_seed(3)
        state = tuple(others[:count]) if cell.memory else others[0]
        z, last = noisin.unroll(cell, x, state)
        return torch.cat([z, *([last[1][None]] if cell.memory else [])])

    assert gradcheck(function, (x, *start, *cell.parameters()), fast_mode=True)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("locked", [True, False])
def test_masks_on_what_the_products_read(name: str, locked: bool) -> None:
    cell, x = make(name, p_h=0.25, locked=locked), inputs()
    first = torch.stack([step.read for step in cell.step_inputs(x)])
    assert all(torch.equal(mask, first[0]) for mask in first) == locked
    assert not torch.equal(first[0], cell.step_inputs(x)[0].read), "a window has its own"
    assert {round(v, 6) for v in first.unique().tolist()} <= {0.0, round(4 / 3, 6)}
    assert cell.eval().step_inputs(x)[0].read is None
    clean = noisin.unroll(cell, x)[0]
    assert torch.equal(clean, noisin.unroll(cell, x)[0])
    cell.train()
    assert not torch.equal(noisin.unroll(cell, x)[0], noisin.unroll(cell, x)[0])
    with torch.no_grad():
        step = cell.step_inputs(x)[1]
        zeros = step._replace(read=torch.zeros(N, H).double())
        h = torch.randn(N, H).double()
        c = torch.zeros_like(h)
        state, other = ((v, c) if cell.memory else v for v in (h, -h))
        if cell.memory:  # nothing but the products depends on h
            assert_close(cell(zeros, state), cell(zeros, other))
        else:  # the carry does
            assert not torch.equal(cell(zeros, state), cell(zeros, other))


def test_the_rate_of_masks() -> None:
    cell = make("highway", p_h=0.25)
    masks = cell.step_inputs(torch.zeros(1, 5000, F).double())[0].read
    stats.assert_mean(masks.numpy().ravel(), 1.0, (1 / 3) ** 0.5)


@pytest.mark.parametrize("name", CELLS)
def test_noise_wraps_it(name: str) -> None:
    inner, x = make(name), inputs()
    cell = noisin.Noisy(inner, noise.Gaussian(0.5))
    eps = torch.randn(T, N, H).double()
    z, _ = noisin.unroll(cell, x, eps=eps)
    state: Any = None
    for t, step in enumerate(inner.step_inputs(x)):
        state = inner(step, state)
        zs = hidden(state) * (1 + eps[t])
        state = (zs, state[1]) if inner.memory else zs
        assert_close(z[t], zs)
    assert torch.equal(noisin.unroll(cell.eval(), x)[0], noisin.unroll(inner.eval(), x)[0])


@pytest.mark.parametrize("name", CELLS)
def test_a_copy_is_equal_and_independent(name: str) -> None:
    cell, x = make(name, p_h=0.3), inputs()
    noisin.unroll(cell, x)  # statistics move
    other = copy.deepcopy(cell)
    fresh = CELLS[name](F, H, p_h=0.3).double()
    fresh.load_state_dict(cell.state_dict())
    expected = noisin.unroll(cell.eval(), x)[0]
    for each in (other, fresh):
        assert torch.equal(noisin.unroll(each.eval(), x)[0], expected)
    with torch.no_grad():
        other.weight_ih.add_(1)
    assert torch.equal(noisin.unroll(cell, x)[0], expected)


@pytest.mark.parametrize("name", CELLS)
def test_the_initialisation_follows_a_generator(name: str) -> None:
    cell = CELLS[name](F, H)
    weights = []
    for _ in range(2):
        cell.reset_parameters(torch.Generator().manual_seed(4))
        weights.append([p.clone() for p in cell.parameters()])
    assert_close(*weights, rtol=0, atol=0)
    assert all(p.abs().max() <= 2 for p in cell.parameters())


def test_autocast_keeps_its_dtype() -> None:
    """As torch's LSTM, the cells emit bfloat16."""
    for name in CELLS:
        cell = CELLS[name](F, H)
        with torch.autocast("cpu", torch.bfloat16):
            z, state = noisin.unroll(cell, torch.randn(T, N, F))
            noisin.unroll(cell, torch.randn(T, N, F), state)
        assert z.dtype in (torch.bfloat16, torch.float32), name


@pytest.mark.parametrize("name", ["highway", "untied"])
def test_bad_input(name: str) -> None:
    cell = CELLS[name](F, H)
    kind = type(cell).__name__
    one = torch.zeros(1, H)
    state = (one, one) if cell.memory else one
    for call, error, message in (
        (lambda: CELLS[name](0, H), InvalidValue, "input_size must be a whole number"),
        (lambda: CELLS[name](F, 1.5), InvalidValue, "hidden_size must be a whole number"),
        (lambda: CELLS[name](F, H, p_h=1.0), InvalidValue, "p_h is a probability"),
        (lambda: CELLS[name](F, H, locked=2), InvalidValue, "locked must be True or False"),
        (lambda: CELLS[name](F, H, generator=3), InvalidType, "generator must be"),
        (lambda: cell(3), InvalidType, "x must be a tensor"),
        (lambda: cell(torch.zeros(N, F + 1)), InvalidValue, f"expected x with {F} features"),
        (lambda: cell(torch.zeros(N, F), state), InvalidValue, "expected a state of shape"),
        (lambda: cell(torch.zeros(N, F).double()), InvalidType, "must be of torch.float32"),
        (lambda: noisin.unroll(cell, torch.zeros(T, N, F + 1)), InvalidValue, "features"),
        (lambda: noisin.unroll(cell, torch.zeros(T, N, F), state), InvalidValue, "shape"),
        (lambda: noisin.unroll(cell, torch.zeros(T, N, F), 3), InvalidType, "initial state"),
    ):
        with pytest.raises(error, match=message) as found:
            call()
        assert str(found.value).startswith(kind)
