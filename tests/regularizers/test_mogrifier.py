"""The Mogrifier LSTM against its equations, and torch's LSTM without rounds."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import noisin
from noisin.errors import InvalidValue
from noisin.regularizers import MogrifierLSTMCell

T, N, F, H = 4, 3, 2, 5


def test_without_rounds_it_is_torchs_lstm() -> None:
    cell, rnn = MogrifierLSTMCell(F, H, rounds=0).double(), nn.LSTM(F, H).double()
    with torch.no_grad():
        cell.weight_ih.copy_(rnn.weight_ih_l0)
        cell.weight_hh.copy_(rnn.weight_hh_l0)
        cell.bias.copy_(rnn.bias_ih_l0 + rnn.bias_hh_l0)
    x = torch.randn(T, N, F).double()
    assert_close(noisin.unroll(cell, x)[0], rnn(x)[0])


@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize("rank", [None, 1])
def test_the_rounds(rounds: int, rank: int | None) -> None:
    """x first, then h, in turn; the LSTM reads what they have become, and its own memory."""
    cell = MogrifierLSTMCell(F, H, rounds=rounds, rank=rank).double()
    x, h, c = (torch.randn(N, n).double() for n in (F, H, H))
    matrices = [
        product.weight if rank is None else product[1].weight @ product[0].weight
        for product in cell.weight_rounds
    ]
    assert [tuple(m.shape) for m in matrices] == [(F, H), (H, F), (F, H), (H, F), (F, H)][:rounds]
    new_x, new_h = x, h
    for number, matrix in enumerate(matrices, start=1):
        if number % 2:
            new_x = 2 * (new_h @ matrix.T).sigmoid() * new_x
        else:
            new_h = 2 * (new_x @ matrix.T).sigmoid() * new_h
    theirs = nn.LSTMCell(F, H).double()
    with torch.no_grad():
        theirs.weight_ih.copy_(cell.weight_ih)
        theirs.weight_hh.copy_(cell.weight_hh)
        theirs.bias_ih.zero_()
        theirs.bias_hh.zero_()
    assert_close(cell(x, (h, c)), theirs(new_x, (new_h, c)))


def test_bad_settings() -> None:
    with pytest.raises(InvalidValue, match="rounds must be a whole number, 0 or more, got -1"):
        MogrifierLSTMCell(F, H, rounds=-1)
    with pytest.raises(InvalidValue, match="rank must be a whole number, 1 or more, got 0"):
        MogrifierLSTMCell(F, H, rank=0)
