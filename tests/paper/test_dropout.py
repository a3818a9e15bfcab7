"""Bernoulli noise is dropout: equalities to the last digit, given the same masks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.regularizers import DropoutLSTMCell, Masks

T, N, I, H, KEEP = 5, 2, 3, 4, 0.6  # noqa: E741
D64: dict[str, Any] = {"dtype": torch.float64}


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(T, N, I, **D64)


def masks(layers: int) -> torch.Tensor:
    """What F.dropout at rate 1 - gamma multiplies by: 0 or 1/gamma."""
    return F.dropout(torch.ones(layers, T, N, H, **D64), 1 - KEEP)


def test_bernoulli_noise_has_the_law_of_dropout() -> None:
    eps = noise.Bernoulli(KEEP).sample((1000,), like=torch.empty((), **D64))
    assert_close((1 + eps).unique(), masks(1).unique())


@pytest.mark.parametrize("layers", [1, 2])
def test_not_fed_back_on_the_last_layer_it_is_zarembas_output_dropout(
    x: torch.Tensor, layers: int
) -> None:
    theirs = nn.LSTM(I, H, layers, **D64)
    ours = noisin.LSTM(I, H, layers, noise=noise.Bernoulli(KEEP), feedback=False,
                       noisy_layers="last", **D64)  # fmt: skip
    ours.load_state_dict(theirs.state_dict())
    mask = masks(layers)
    z, (h_n, c_n) = ours(x, eps=mask - 1)
    output, state = theirs(x)
    assert_close(z, output * mask[-1], rtol=1e-15, atol=0)
    assert torch.equal(h_n, state[0])
    assert torch.equal(c_n, state[1])


def test_on_every_layer_not_fed_back_it_is_zarembas_dropout_between_layers(x: torch.Tensor) -> None:
    ours = noisin.LSTM(I, H, 2, noise=noise.Bernoulli(KEEP), feedback=False, **D64)
    first, second = nn.LSTM(I, H, **D64), nn.LSTM(H, H, **D64)
    for layer, module in enumerate((first, second)):
        weights = {
            n.replace("l1", "l0"): w for n, w in ours.state_dict().items() if f"l{layer}" in n
        }
        module.load_state_dict(weights)
    mask = masks(2)
    expected = second(first(x)[0] * mask[0])[0] * mask[1]
    assert_close(ours(x, eps=mask - 1)[0], expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    ("layer", "cell"),
    [(noisin.RNN, nn.RNNCell), (noisin.LSTM, nn.LSTMCell)],
)
def test_fed_back_it_is_fresh_mask_dropout_of_h(x: torch.Tensor, layer: type, cell: type) -> None:
    """One mask shared by the recurrence, the next layer and the output."""
    ours = layer(I, H, 2, noise=noise.Bernoulli(KEEP), **D64)
    mask = masks(2)
    inputs = x
    for k in range(2):
        theirs = cell(I if k == 0 else H, H, **D64)
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        theirs.load_state_dict({n: ours.state_dict()[f"{n}_l{k}"] for n in names})
        state, outputs = None, []
        for t in range(T):
            state = theirs(inputs[t], state)
            h = state[0] if cell is nn.LSTMCell else state
            dropped = h * mask[k, t]
            state = (dropped, state[1]) if cell is nn.LSTMCell else dropped
            outputs.append(dropped)
        inputs = torch.stack(outputs)
    assert_close(ours(x, eps=mask - 1)[0], inputs, rtol=1e-12, atol=1e-15)


def test_the_general_dropout_cell_with_a_shared_mask_before_the_product(x: torch.Tensor) -> None:
    """Dropout of h_{t-1} inside the gates is fed-back Bernoulli noise seen from the recurrence.

    The cell masks what the gates read and emits h; the noise also masks what is emitted. So the
    masked emissions of the cell are the noisy states, with the mask of a step read at the next.
    """
    cell = DropoutLSTMCell(I, H, p_h=1 - KEEP, site="before", shared=True, **D64)
    ours = noisin.LSTM(I, H, noise=noise.Bernoulli(KEEP), **D64)
    ours.load_state_dict({f"{n}_l0": w for n, w in cell.state_dict().items()})
    mask = masks(1)[0]
    z, (_, c_n) = ours(x, eps=mask[None] - 1)
    state = (torch.zeros(N, H, **D64), torch.zeros(N, H, **D64))
    read = torch.ones(N, 1, H, **D64)
    for t in range(T):
        state = cell(x[t], state, masks=Masks(None, read))
        read = mask[t][:, None]
        assert_close(z[t], state[0] * mask[t], rtol=1e-13, atol=1e-15)
    assert_close(c_n[0], state[1], rtol=1e-13, atol=1e-15)
