"""Cells as layers: they give what noisin's layers and a loop by hand give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import noisin
from noisin import noise, objective
from noisin.errors import InvalidType
from noisin.likelihoods import Gaussian
from noisin.recurrent.cell import CELLS
from noisin.recurrent.names import KERNEL_NAMES

T, N, F, H = 5, 3, 2, 4


class Leaky(nn.Module):
    """A cell of a user's own, with a state that is not a bare tensor."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size + hidden_size, hidden_size)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Tensor]:
        h, slow = (x.new_zeros(len(x), self.linear.out_features),) * 2 if state is None else state
        h = self.linear(torch.cat([x, h], -1)).tanh()
        return h + slow, 0.9 * slow + 0.1 * h


@pytest.mark.parametrize("name", KERNEL_NAMES)
@pytest.mark.parametrize("feedback", [True, False])
def test_a_cell_of_the_list_is_its_layer(name: str, feedback: bool) -> None:
    """The same parameters and noise give the same values, of all built-in cells."""
    spec = CELLS[name]
    rnn = spec.load()(F, H, **spec.arguments, noise=noise.Gaussian(0.5), feedback=feedback).double()
    if name == "gru":  # whose carry needs a place in the state
        cell = noisin.GRUCell(F, H, site="read").double()
    else:
        cell = spec.load_cell()(F, H, **spec.arguments).double()
    cell.load_state_dict({key[:-3]: value for key, value in rnn.state_dict().items()})
    layer = noisin.Unrolled(noisin.Noisy(cell, None, feedback=feedback))
    x, eps = torch.randn(T, N, F).double(), torch.randn(1, T, N, H).double()
    z, state = rnn(x, eps=eps)
    found, carried = layer(x, eps=eps[0])
    assert_close(found, z)
    last = carried[-1] if isinstance(carried, tuple) else carried
    assert_close(last, (state[-1] if isinstance(state, tuple) else state)[0])


def test_a_state_carries_over_and_none_is_the_initial_one() -> None:
    layer = noisin.Unrolled(Leaky(F, H))
    x = torch.randn(T, N, F)
    whole, final = layer(x)
    first, state = layer(x[:2])
    second, carried = layer(x[2:], state)
    assert_close(torch.cat([first, second]), whole)
    assert_close(carried, final)


def test_noise_switches_reach_the_cell() -> None:
    layer = noisin.Unrolled(noisin.Noisy(Leaky(F, H), noise.Gaussian(0.5)))
    x = torch.randn(T, N, F)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    with noisin.noise_off(layer):
        assert torch.equal(layer(x)[0], layer(x)[0])
    assert torch.equal(layer.eval()(x)[0], layer(x)[0])


def test_the_objective_folds_its_state() -> None:
    """A cell's state has its rows in another place than a layer's."""
    layer = noisin.Unrolled(noisin.Noisy(Leaky(F, H), noise.Gaussian(0.5)))
    batch = objective.Window(
        torch.randn(T, N, F), torch.randn(T, N, H), layer(torch.ones(1, N, F))[1]
    )
    found = objective.estimate(layer, batch, K=3, likelihood=Gaussian())
    assert found.log_p.shape == (3, N)
    assert found.state[0].shape == (3 * N, H)


def test_what_is_refused() -> None:
    for wrong in (nn.LSTM(F, H), nn.LSTMCell, 3):
        with pytest.raises(InvalidType, match="Unrolled: expected a cell"):
            noisin.Unrolled(wrong)
