"""The recurrent highway network against its equations, a tanh RNN, and its published size."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import noisin
from noisin.models import LanguageModel
from noisin.regularizers import HighwayCell

T, N, F, H = 4, 3, 2, 5


@pytest.mark.parametrize("depth", [1, 3])
def test_equations(depth: int) -> None:
    """Product by product, with one mask for all layers and steps of the window."""
    cell = HighwayCell(F, H, depth=depth, p_h=0.4).double()
    x = torch.randn(T, N, F).double()
    torch.manual_seed(3)
    z, last = noisin.unroll(cell, x)
    torch.manual_seed(3)
    m = cell.step_inputs(x)[0].read
    assert m is not None
    w_h, w_t = cell.weight_ih.chunk(2)
    s = torch.zeros(N, H).double()
    for t in range(T):
        for layer in range(depth):
            (r_h, r_t), (b_h, b_t) = cell.weight_hh[layer].chunk(2), cell.biases[layer].chunk(2)
            from_x = (x[t] @ w_h.T, x[t] @ w_t.T) if layer == 0 else (0, 0)
            h = (from_x[0] + (s * m) @ r_h.T + b_h).tanh()
            g = (from_x[1] + (s * m) @ r_t.T + b_t).sigmoid()
            s = g * h + (1 - g) * s
        assert_close(z[t], s)
    assert_close(last, s)


def test_one_layer_that_always_transforms_is_an_elman_network() -> None:
    cell = HighwayCell(F, H, depth=1).double()
    rnn = nn.RNN(F, H).double()
    with torch.no_grad():
        cell.weight_ih[:H].copy_(rnn.weight_ih_l0)
        cell.weight_hh[0][:H].copy_(rnn.weight_hh_l0)
        cell.biases[0][:H].copy_(rnn.bias_ih_l0 + rnn.bias_hh_l0)
        cell.biases[0][H:].fill_(1e3)
    x = torch.randn(T, N, F).double()
    assert_close(noisin.unroll(cell, x)[0], rnn(x)[0])


def test_one_that_never_transforms_keeps_its_state() -> None:
    cell = HighwayCell(F, H, depth=4)
    with torch.no_grad():
        for bias in cell.biases:
            bias[H:].fill_(-1e3)
    s = torch.randn(N, H)
    assert torch.equal(noisin.unroll(cell, torch.randn(T, N, F), s)[1], s)


def test_the_published_size_and_initial_biases() -> None:
    """23,482,400: no bias on the input's products, one pair of biases for each layer."""
    with torch.device("meta"):
        cell = HighwayCell(830, 830, depth=10)
    words = 10_000 * 830 + 10_000  # the tied embedding and the bias of the softmax
    assert sum(p.numel() for p in cell.parameters()) + words == 23_482_400
    lm = LanguageModel(7, hidden_size=5, num_layers=1, cell="highway")
    assert sum(p.numel() for p in lm.parameters()) == 7 * 5 + 7 + 2 * 5 * (5 + 10 * 5 + 10)
    (built,) = (m for m in lm.modules() if isinstance(m, HighwayCell))
    assert all(set(bias[:5].tolist()) == {0.0} for bias in built.biases)
    assert all(set(bias[5:].tolist()) == {-2.0} for bias in built.biases)
