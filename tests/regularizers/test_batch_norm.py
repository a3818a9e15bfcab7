"""The batch-normalised LSTM: its equations, its statistics per step, and what it refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import noisin
from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.noise.sampling import Shard, set_shard
from noisin.regularizers import BatchNormLSTMCell, Zoneout
from noisin.training import Average

T, N, F, H = 4, 6, 2, 3


def normal(v: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return (v - mean) / (variance + 1e-5).sqrt()


def test_equations_while_training_and_in_eval() -> None:
    cell = BatchNormLSTMCell(F, H, t_max=T).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    x = torch.randn(T, N, F).double()
    start = tuple(torch.randn(2, N, H).double())
    found, _ = noisin.unroll(cell, x, start)
    h, c = start
    for t in range(T):  # by the rows of the batch; they also are in the running averages

        def of_batch(place: str, v: Tensor, t: int = t) -> Tensor:
            mean, variance = v.mean(0), v.var(0, unbiased=False)
            running = (getattr(cell, f"mean_{place}"), getattr(cell, f"variance_{place}"))
            assert_close(running[0][t], 0.05 * mean)
            assert_close(running[1][t], 0.95 + 0.05 * v.var(0))
            return normal(v, mean, variance) * getattr(cell, f"gain_{place}")

        gates = of_batch("x", x[t] @ cell.weight_ih.T) + of_batch("h", h @ cell.weight_hh.T)
        i, f, g, o = (gates + cell.bias).split(H, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * (of_batch("c", c) + cell.shift_c).tanh()
        assert_close(found[t], h)
    statistics = {name: buffer.clone() for name, buffer in cell.named_buffers()}
    clean, _ = noisin.unroll(cell.eval(), x, start)
    h, c = start
    for t in range(T):

        def running(place: str, v: Tensor, t: int = t) -> Tensor:
            mean, variance = (statistics[f"{name}_{place}"][t] for name in ("mean", "variance"))
            return normal(v, mean, variance) * getattr(cell, f"gain_{place}")

        gates = running("x", x[t] @ cell.weight_ih.T) + running("h", h @ cell.weight_hh.T)
        i, f, g, o = (gates + cell.bias).split(H, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * (running("c", c) + cell.shift_c).tanh()
        assert_close(clean[t], h)
    assert_close(dict(cell.named_buffers()), statistics, rtol=0, atol=0)


def test_steps_beyond_the_last_share_its_statistics() -> None:
    """A window of T steps with t_max = 2 is one step, then T - 1 that move the second average."""
    cell = BatchNormLSTMCell(F, H, t_max=2).double()
    x = torch.randn(T, N, F).double()
    noisin.unroll(cell, x)
    products = x @ cell.weight_ih.detach().T
    expected = torch.zeros(4 * H).double()
    for t in range(1, T):
        expected = 0.95 * expected + 0.05 * products[t].mean(0)
    assert_close(cell.mean_x[0], 0.05 * products[0].mean(0))
    assert_close(cell.mean_x[1], expected)


def trained(T: int = T, **options: Any) -> BatchNormLSTMCell:
    """A cell whose averages are those of windows of T steps, each from a state of None."""
    cell = BatchNormLSTMCell(F, H, momentum=0.5, **options).double()
    for _ in range(5):
        noisin.unroll(cell, 2 * torch.randn(T, N, F).double() + 1)
    return cell.eval()


def in_windows(cell: Any, x: Tensor, length: int) -> Tensor:
    """What is emitted where the state is carried from window to window."""
    state, emitted = None, []
    for window in x.split(length):
        z, state = noisin.unroll(cell, window, state)
        emitted.append(z)
    return torch.cat(emitted)


@pytest.mark.parametrize("t_max", [1, 3, 100])
@pytest.mark.parametrize("around", [lambda cell: cell, lambda cell: Zoneout(cell, 0.2, 0.3)])
def test_windows_do_not_matter(t_max: int, around: Callable[[Any], Any]) -> None:
    cell, x = around(trained(t_max=t_max)).eval(), torch.randn(11, N, F).double()
    whole = in_windows(cell, x, 11)
    for length in (1, 2, 5):
        assert_close(in_windows(cell, x, length), whole)


def test_training_counts_steps_as_evaluation_does() -> None:
    x = torch.randn(6, N, F).double()
    whole, parts = (BatchNormLSTMCell(F, H, t_max=4).double() for _ in range(2))
    parts.load_state_dict(whole.state_dict())
    assert_close(in_windows(parts, x, 2), in_windows(whole, x, 6))
    assert_close(parts.state_dict(), whole.state_dict())


def test_steps_that_were_never_trained_use_the_last_that_was() -> None:
    """Also in a copy, from a state dict, and in the mean of several states of the weights."""
    few, many = (trained(T, t_max=t_max) for t_max in (T, 100))
    for name, buffer in many.named_buffers():
        few.get_buffer(name).copy_(buffer[:T])
    few.load_state_dict(dict(few.state_dict()) | dict(many.named_parameters()))
    x = torch.randn(3 * T, N, F).double()
    expected = noisin.unroll(few, x)[0]
    assert_close(noisin.unroll(many, x)[0], expected)
    assert_close(noisin.unroll(copy.deepcopy(many), x)[0], expected)
    average = Average(many.state_dict().values())
    for _ in range(7):
        average.update()
    with average.applied():
        assert_close(noisin.unroll(many, x)[0], expected)


def test_a_number_of_steps_is_checked() -> None:
    cell, x = trained(t_max=3), torch.zeros(N, F).double()
    h, c, t = cell(x, cell(x))
    assert t.shape == (N, 1)
    assert t.unique().tolist() == [2]
    with pytest.raises(InvalidType, match="t must be a tensor"):
        cell(x, (h, c, 2))
    with pytest.raises(InvalidValue, match=r"expected a state of shape \(6, 1\)"):
        cell(x, (h, c, t[:2]))


def test_it_begins_with_small_gains_and_does_not_forget() -> None:
    cell = BatchNormLSTMCell(F, H)
    assert_close(cell.gain_x, torch.full((4 * H,), 0.1))
    assert [set(b.tolist()) for b in cell.bias.split(H)] == [{0.0}, {1.0}, {0.0}, {0.0}]


def test_checkpointing_counts_statistics_once() -> None:
    cell, other = (BatchNormLSTMCell(F, H) for _ in range(2))
    other.load_state_dict(cell.state_dict())
    x = torch.randn(T, N, F)
    layer = noisin.Unrolled(cell)
    checkpoint(lambda x: layer(x)[0], x, use_reentrant=False).sum().backward()
    noisin.unroll(other, x)[0].sum().backward()
    assert_close(cell.state_dict(), other.state_dict())
    assert_close(cell.weight_hh.grad, other.weight_hh.grad)


def test_what_is_refused() -> None:
    cell = BatchNormLSTMCell(F, H)
    for x in (torch.zeros(T, 1, F), torch.zeros(T, F)):
        with pytest.raises(InvalidValue, match="need 2 rows or more while training"):
            noisin.unroll(cell, x)
        noisin.unroll(cell.eval(), x)
        cell.train()
    set_shard(cell, Shard(0, 2, N))
    with pytest.raises(Unsupported, match="the statistics of their own rows"):
        noisin.unroll(cell, torch.zeros(T, 2, F))
    noisin.unroll(cell.eval(), torch.zeros(T, 2, F))
    for settings, message in (
        ({"t_max": 0}, "t_max must be a whole number, 1 or more"),
        ({"momentum": 0}, "momentum must be a finite number above 0"),
        ({"momentum": 1.5}, "momentum must be 1 or less"),
        ({"eps": -1.0}, "eps must be a finite number above 0"),
    ):
        with pytest.raises(InvalidValue, match=message):
            BatchNormLSTMCell(F, H, **settings)
