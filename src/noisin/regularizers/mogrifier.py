"""The Mogrifier LSTM (Melis, Kočiský and Blunsom, 2020): input and state gate each other first."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from noisin._util import arguments
from noisin.recurrent.functional import States
from noisin.recurrent.windows import StepInput
from noisin.regularizers.windowed import WindowCell, recur


class MogrifierLSTMCell(WindowCell):
    r"""An LSTM of x and h that have gated each other in r rounds.

    In odd rounds h gates x, in even rounds the new x gates h:

    .. math::

        x &\leftarrow 2 \sigma(Q_i h) \odot x, \qquad i = 1, 3, \dots \le r, \\
        h &\leftarrow 2 \sigma(R_i x) \odot h, \qquad i = 2, 4, \dots \le r.

    Each round has its own matrix, or a product of two of lower rank. Without rounds it is torch's
    LSTM. (Melis, Kočiský and Blunsom, *Mogrifier LSTM*, ICLR 2020.)

    Args:
        input_size, hidden_size: the sizes.
        rounds: r; 5 in the paper.
        rank: of the matrices; None is full rank.
        options: ``p_h``, ``locked`` and ``generator`` of
            :class:`~noisin.regularizers.windowed.WindowCell`.

    >>> import torch
    >>> cell = MogrifierLSTMCell(2, 3, rank=1)
    >>> h, c = cell(torch.zeros(1, 2))
    >>> h.shape
    torch.Size([1, 3])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        rounds: int = 5,
        rank: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.rounds = arguments.whole("MogrifierLSTMCell: rounds", rounds, 0)
        self.rank = rank if rank is None else arguments.whole("MogrifierLSTMCell: rank", rank)
        self._gates(4)
        sizes = (input_size, hidden_size)
        self.weight_rounds = nn.ModuleList(
            _product(sizes[(i + 1) % 2], sizes[i % 2], rank) for i in range(rounds)
        )
        self.reset_parameters()

    def project(self, x: Tensor) -> Tensor:
        """The input itself, because its products depend on the state."""
        return x

    def transition(self, x: StepInput, read: Tensor, state: States) -> States:
        """The rounds, then torch's LSTM."""
        v = [x.x, read]
        for i, product in enumerate(self.weight_rounds):
            gated, gate = i % 2, (i + 1) % 2
            v[gated] = 2 * product(v[gate]).sigmoid() * v[gated]
        gates_x = F.linear(v[0], self.weight_ih, self.bias)
        i_, f, g, o = recur(gates_x, v[1], self.weight_hh).chunk(4, dim=-1)
        c = f.sigmoid() * state[1] + i_.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    def extra_repr(self) -> str:
        """The sizes, the rounds and the recurrent dropout."""
        return f"{super().extra_repr()}, rounds={self.rounds}, rank={self.rank}"


def _product(inputs: int, outputs: int, rank: int | None) -> nn.Module:
    if rank is None:
        return nn.Linear(inputs, outputs, bias=False)
    factors = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)
    return nn.Sequential(*factors)
