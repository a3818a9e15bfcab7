"""Any cell as a layer: the loop over time as a module."""

from __future__ import annotations

from torch import Tensor, nn

from noisin._util import checks
from noisin.recurrent.cells import Cell, unroll
from noisin.recurrent.functional import State


class Unrolled(nn.Module):
    """A cell with the call of an RNN: ``(T, N, F), state -> (T, N, H), state``.

    The cell is any ``(x, state) -> state``: torch's, noisin's, one with noise, zoneout or dropout
    around it, or your own. Its state is a tensor or a tree of tensors whose batch is dimension -2;
    None is the initial one. :func:`~noisin.unroll` describes what is emitted and carried.

    Args:
        cell: the cell, of one step.

    >>> import torch, noisin
    >>> from noisin import noise, regularizers
    >>> cell = regularizers.Zoneout(noisin.LSTMCell(2, 3), p_h=0.05, p_c=0.5)
    >>> layer = Unrolled(noisin.Noisy(cell, noise.Gamma(0.4, alpha=2.0)))
    >>> z, (z_n, c_n) = layer(torch.zeros(5, 1, 2))
    >>> z.shape
    torch.Size([5, 1, 3])
    """

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        checks.require_cell("Unrolled", cell)
        self.cell = cell

    def forward(
        self, x: Tensor, state: State = None, *, eps: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Run the cell over time; ``eps``, ``(T, N, H)``, is the caller's noise for it."""
        return unroll(self.cell, x, state, eps=eps)
