"""Windows: what a cell prepares once for all steps reaches it, through all wrappers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.errors import InvalidValue
from noisin.recurrent.windows import step_inputs
from noisin.regularizers import Zoneout

T, N, F, H = 5, 3, 2, 4


class Counting(nn.Module):
    """An Elman cell that knows how often a window began, and adds the number of the step."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.RNNCell(F, H)
        self.windows = 0

    def step_inputs(self, x: Tensor) -> Sequence[tuple[Tensor, int]]:
        self.windows += 1
        return [(x_t, t) for t, x_t in enumerate(x)]

    def forward(self, x: tuple[Tensor, int], state: Tensor | None = None) -> Tensor:
        return self.inner(x[0], state) + x[1]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda cell: cell,
        lambda cell: noisin.Noisy(cell, None),
        lambda cell: noisin.Noisy(Zoneout(cell), noise.Gaussian(1e-9), feedback=False),
    ],
)
def test_a_window_begins_once_and_steps_have_their_numbers(wrap) -> None:  # type: ignore[no-untyped-def]
    cell = Counting().double()
    x = torch.randn(T, N, F).double()
    z, last = noisin.Unrolled(wrap(cell))(x)
    assert cell.windows == 1
    state = None
    for t in range(T):
        state = cell((x[t], t), state)
        assert_close(z[t], state)
    assert_close(last, state)


def test_a_cell_without_it_gets_the_inputs() -> None:
    x = torch.randn(T, N, F)
    assert all(map(torch.equal, step_inputs(nn.LSTMCell(F, H), x), x))
    assert all(map(torch.equal, step_inputs(lambda x, state: x, x), x))


def test_a_wrong_number_of_steps_is_refused() -> None:
    class Short(Counting):
        def step_inputs(self, x: Tensor) -> Sequence[tuple[Tensor, int]]:
            return super().step_inputs(x)[:-1]

    with pytest.raises(InvalidValue, match="one value for each of the 5 steps of x, got 4"):
        noisin.unroll(Short(), torch.zeros(T, N, F))
