"""The LSTM of Melis et al. against torch's, and the bound of its memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

import noisin
from noisin.errors import InvalidValue
from noisin.regularizers import MelisLSTMCell

T, N, F, H = 4, 3, 2, 5


def test_untied_is_torchs_lstm() -> None:
    cell, rnn = MelisLSTMCell(F, H, gates="untied").double(), nn.LSTM(F, H).double()
    with torch.no_grad():
        cell.weight_ih.copy_(rnn.weight_ih_l0)
        cell.weight_hh.copy_(rnn.weight_hh_l0)
        cell.bias.copy_(rnn.bias_ih_l0 + rnn.bias_hh_l0)
    x = torch.randn(T, N, F).double()
    z, (h, c) = noisin.unroll(cell, x)
    expected, (h_n, c_n) = rnn(x)
    assert_close((z, h, c), (expected, h_n[0], c_n[0]))


@pytest.mark.parametrize("gates", ["capped", "tied"])
def test_equations(gates: Any) -> None:
    cell = MelisLSTMCell(F, H, gates=gates).double()
    x, h, c = (torch.randn(N, n).double() for n in (F, H, H))
    slots = (x @ cell.weight_ih.T + h @ cell.weight_hh.T + cell.bias).split(H, -1)
    f, g, o = slots[-3].sigmoid(), slots[-2].tanh(), slots[-1].sigmoid()
    k = 1 - f if gates == "tied" else torch.minimum(1 - f, slots[0].sigmoid())
    new = f * c + k * g
    assert_close(cell(x, (h, c)), (o * new.tanh(), new))
    assert len(slots) == (3 if gates == "tied" else 4), "no gate is without effect"


@given(
    gates=st.sampled_from(["capped", "tied"]),
    seed=st.integers(0, 2**31),
    scale=st.floats(0, 1e4),
)
def test_the_memory_stays_within_one(gates: Any, seed: int, scale: float) -> None:
    random = torch.Generator().manual_seed(seed)
    cell = MelisLSTMCell(F, H, gates=gates).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=random))
        x = scale * torch.randn(8, N, F, generator=random).double()
        h = scale * torch.randn(N, H, generator=random).double()
        c = 2 * torch.rand(N, H, generator=random).double() - 1
        for x_t in x:
            h, c = cell(x_t, (h, c))
            assert c.abs().max() <= 1 + 1e-15


def test_an_untied_memory_does_not() -> None:
    """The bound is a property of the gates, not of the test."""
    cell = MelisLSTMCell(F, H, gates="untied")
    with torch.no_grad():
        cell.bias.fill_(1e3)
        _, (_, c) = noisin.unroll(cell, torch.zeros(T, N, F))
    assert c.min() > 3


def test_the_published_size_and_the_forget_bias() -> None:
    """24M, four layers: 10,001 words of 723 units, tied, and the bias of the softmax."""
    with torch.device("meta"):
        cell = MelisLSTMCell(723, 723)
    count = sum(p.numel() for p in cell.parameters())
    assert 4 * count + 10_001 * 723 + 10_001 == 23_979_620
    for gates in ("capped", "tied", "untied"):
        bias = MelisLSTMCell(F, H, gates=gates).bias.split(H)
        assert [set(b.tolist()) for b in bias[-3:]] == [{1.0}, {0.0}, {0.0}]
    with pytest.raises(InvalidValue, match="gates must be 'capped' or 'tied' or 'untied'"):
        MelisLSTMCell(F, H, gates="open")
