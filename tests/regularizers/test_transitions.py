"""Zoneout: units that keep their previous value."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.regularizers import Zoneout
from tests import stats

F, H = 3, 4


def test_each_unit_is_the_old_value_or_the_new() -> None:
    inner = nn.LSTMCell(F, H)
    cell = Zoneout(inner, p_h=0.25, p_c=0.5)
    x, old = torch.randn(5000, F), (torch.randn(5000, H), torch.randn(5000, H))
    new = inner(x, old)
    for got, o, n, p in zip(cell(x, old), old, new, (0.25, 0.5), strict=True):
        kept = got == o
        assert torch.equal(got, torch.where(kept, o, n))
        stats.assert_mean(kept.double().numpy().ravel(), p, (p * (1 - p)) ** 0.5)


def test_expectation_in_eval() -> None:
    inner = nn.LSTMCell(F, H)
    cell = Zoneout(inner, p_h=0.25, p_c=0.5).eval()
    x, (h, c) = torch.randn(2, F), (torch.randn(2, H), torch.randn(2, H))
    new_h, new_c = inner(x, (h, c))
    got_h, got_c = cell(x, (h, c))
    assert_close(got_h, 0.25 * h + 0.75 * new_h)
    assert_close(got_c, 0.5 * c + 0.5 * new_c)


def test_without_rates_it_is_the_cell() -> None:
    for inner in (nn.LSTMCell(F, H), nn.GRUCell(F, H)):
        x = torch.randn(6, 2, F)
        assert_close(noisin.unroll(Zoneout(inner), x), noisin.unroll(inner, x))


def test_the_first_step_keeps_zero() -> None:
    h = Zoneout(nn.RNNCell(F, H), p_h=0.5)(torch.randn(500, F))
    assert 0.4 < (h == 0).float().mean() < 0.6


def test_noise_wraps_zoneout_around_our_cell() -> None:
    inner = noisin.LSTMCell(F, H)
    cell = noisin.Noisy(Zoneout(inner, p_h=0.05, p_c=0.5), noise.Gamma(0.4, alpha=2.0))
    x = torch.randn(6, 2, F)
    z, _ = noisin.unroll(cell, x)
    z.sum().backward()
    assert inner.weight_hh.grad.any()
    cell.eval()
    assert torch.equal(noisin.unroll(cell, x)[0], noisin.unroll(cell.cell, x)[0])


def test_bad_input() -> None:
    with pytest.raises(InvalidValue, match="p_h is a probability"):
        Zoneout(nn.LSTMCell(F, H), p_h=1.5)
    for wrong in (nn.LSTM(F, H), 3, nn.LSTMCell):
        with pytest.raises(InvalidType, match="Zoneout: expected a cell"):
            Zoneout(wrong)
    with pytest.raises(Unsupported, match="two forms of one value"):
        Zoneout(noisin.GRUCell(F, H, site="read"), p_h=0.5)
    with pytest.raises(InvalidValue, match=r"a state h or \(h, c\), got tuple of 3"):
        Zoneout(lambda x, state: (x, x, x), p_h=0.5)(torch.zeros(1, F))
    with pytest.raises(InvalidValue, match="got NoneType"):
        Zoneout(lambda x, state: None, p_h=0.5)(torch.zeros(1, F))
    with pytest.raises(InvalidValue, match="GRUCell has none"):
        Zoneout(nn.GRUCell(F, H), p_c=0.5)(torch.zeros(1, F))
