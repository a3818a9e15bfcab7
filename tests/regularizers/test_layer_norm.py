"""Layer-normalised cells against their equations, unit by unit, and the invariance they buy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import noisin
from noisin.errors import InvalidValue
from noisin.regularizers import LayerNormGRUCell, LayerNormLSTMCell

T, N, F, H = 3, 4, 2, 5


def normal(v: Tensor, scope: str, gain: Tensor, shift: Tensor) -> Tensor:
    """Each row, or each gate of it, minus its mean and over its standard deviation."""
    parts = [v] if scope == "all" else v.split(H, -1)
    scaled = [
        (p - p.mean(-1, keepdim=True)) / (p.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        for p in parts
    ]
    return torch.cat(scaled, -1) * gain + shift


def randomized(cell: Any) -> Any:
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    return cell.double()


@pytest.mark.parametrize("scope", ["all", "gate"])
def test_lstm(scope: Any) -> None:
    cell = randomized(LayerNormLSTMCell(F, H, scope=scope))
    x, h, c = (torch.randn(N, n).double() for n in (F, H, H))
    from_x = normal(x @ cell.weight_ih.T + cell.bias, scope, cell.gain_x, cell.shift_x)
    from_h = normal(h @ cell.weight_hh.T, scope, cell.gain_h, cell.shift_h)
    i, f, g, o = (from_x + from_h + cell.bias).split(H, -1)
    new = f.sigmoid() * c + i.sigmoid() * g.tanh()
    expected = o.sigmoid() * normal(new, "all", cell.gain_c, cell.shift_c).tanh()
    assert_close(cell(x, (h, c)), (expected, new))


@pytest.mark.parametrize("scope", ["all", "gate"])
def test_gru(scope: Any) -> None:
    cell = randomized(LayerNormGRUCell(F, H, scope=scope))
    x, h = torch.randn(N, F).double(), torch.randn(N, H).double()
    from_x, from_h = x @ cell.weight_ih.T + cell.bias, h @ cell.weight_hh.T
    gates = normal(from_x[:, : 2 * H], scope, cell.gain_x, cell.shift_x)
    gates = gates + normal(from_h[:, : 2 * H], scope, cell.gain_h, cell.shift_h)
    r, u = gates.sigmoid().split(H, -1)
    n = r * normal(from_h[:, 2 * H :], "all", cell.gain_nh, cell.shift_nh)
    n = (n + normal(from_x[:, 2 * H :], "all", cell.gain_nx, cell.shift_nx)).tanh()
    assert_close(cell(x, h), u * h + (1 - u) * n)


@pytest.mark.parametrize("kind", [LayerNormLSTMCell, LayerNormGRUCell])
def test_the_scale_of_the_recurrent_weights_does_not_matter(kind: Any) -> None:
    cell = kind(F, H, eps=1e-12).double()
    x = torch.randn(T, N, F).double()
    start = torch.randn(N, H).double()
    state = (start, start) if cell.memory else start
    before = noisin.unroll(cell, x, state)[0]
    with torch.no_grad():
        cell.weight_hh.mul_(7)
    assert_close(noisin.unroll(cell, x, state)[0], before)


def test_the_initial_gains() -> None:
    for kind in (LayerNormLSTMCell, LayerNormGRUCell):
        for name, parameter in kind(F, H).named_parameters():
            if not name.startswith("weight"):
                assert set(parameter.tolist()) == {1.0 if name.startswith("gain") else 0.0}


def test_bad_settings() -> None:
    with pytest.raises(InvalidValue, match="scope must be 'all' or 'gate', got 'row'"):
        LayerNormLSTMCell(F, H, scope="row")
    with pytest.raises(InvalidValue, match="eps must be a finite number above 0, got 0"):
        LayerNormGRUCell(F, H, eps=0)
