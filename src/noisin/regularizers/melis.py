"""The LSTM of Melis et al. (2018), with capped, tied or untied gates."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from noisin._util import checks
from noisin.recurrent.functional import States
from noisin.recurrent.windows import StepInput
from noisin.regularizers.windowed import WindowCell, recur

Gates = Literal["capped", "tied", "untied"]
FORGET_BIAS = 1.0


class MelisLSTMCell(WindowCell):
    r"""An LSTM whose memory stays bounded, because the gates i and f compete.

    .. math:: c_t = f \odot c_{t-1} + k \odot g, \qquad h_t = o \odot \tanh(c_t),

    where k is ``min(1 - f, i)`` if *capped*, ``1 - f`` if *tied*, and i if *untied*, which is
    torch's LSTM. Capped and tied, :math:`|c_t| \le 1` wherever :math:`|c_{t-1}| \le 1`. (Melis,
    Dyer and Blunsom, *On the State of the Art of Evaluation in Neural Language Models*, ICLR 2018,
    and their code, deepmind/lamb.)

    Args:
        input_size, hidden_size: the sizes.
        gates: ``"capped"``, ``"tied"`` or ``"untied"``.
        options: ``p_h``, ``locked`` and ``generator`` of
            :class:`~noisin.regularizers.windowed.WindowCell`: the state dropout of that paper.

    There is one bias per gate, 1 for f and 0 for the others before training.

    >>> cell = MelisLSTMCell(2, 3, p_h=0.2153)
    >>> h, c = cell(torch.zeros(1, 2))
    >>> h.shape
    torch.Size([1, 3])
    """

    def __init__(
        self, input_size: int, hidden_size: int, *, gates: Gates = "capped", **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        checks.one_of("MelisLSTMCell: gates", gates, ("capped", "tied", "untied"))
        self.gates = gates
        self._gates(3 if gates == "tied" else 4)  # f, g, o; or i before them, as torch
        self.reset_parameters()

    def _reset_biases(self) -> None:
        H = self.hidden_size
        first = 0 if self.gates == "tied" else H
        self.bias[first : first + H].fill_(FORGET_BIAS)

    def transition(self, x: StepInput, read: Tensor, state: States) -> States:
        """One step."""
        *i, f, g, o = recur(x.x, read, self.weight_hh).chunk(len(self.bias) // self.hidden_size, -1)
        f = f.sigmoid()
        if self.gates == "untied":
            k = i[0].sigmoid()
        elif self.gates == "tied":
            k = 1 - f
        else:
            k = torch.minimum(1 - f, i[0].sigmoid())
        c = f * state[1] + k * g.tanh()
        return o.sigmoid() * c.tanh(), c

    def extra_repr(self) -> str:
        """The sizes, the gates and the recurrent dropout."""
        return f"{super().extra_repr()}, gates={self.gates!r}"
