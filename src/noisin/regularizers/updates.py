"""Recurrent dropout of updates (Semeniuta et al., 2016): memory is never dropped, news is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from noisin._util import checks
from noisin.recurrent.functional import States
from noisin.recurrent.windows import StepInput
from noisin.regularizers.cells import check_rate
from noisin.regularizers.windowed import WindowCell, recur


class UpdateDropoutCell(WindowCell):
    """A cell with torch's parameters that drops parts of what a step adds to its state.

    Args:
        input_size, hidden_size: the sizes.
        p: the drop rate of the update.
        locked_update: one mask of the update for all steps of a window, or a fresh one per step.
        options: ``p_h``, ``locked`` and ``generator`` of
            :class:`~noisin.regularizers.windowed.WindowCell`.
    """

    slots: int

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        p: float = 0.0,
        locked_update: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        name = type(self).__name__
        check_rate(f"{name}: p", p)
        checks.one_of(f"{name}: locked_update", locked_update, (True, False))
        self.p = p
        self.locked_update = locked_update
        rows = self.slots * hidden_size
        self.weight_ih = nn.Parameter(torch.empty(rows, input_size))
        self.weight_hh = nn.Parameter(torch.empty(rows, hidden_size))
        self.bias_ih = nn.Parameter(torch.empty(rows))
        self.bias_hh = nn.Parameter(torch.empty(rows))
        self.reset_parameters()

    @property
    def acts(self) -> bool:
        """Whether anything is dropped at present."""
        return self.training and (self.p_h > 0 or self.p > 0)

    def project(self, x: Tensor) -> Tensor:
        """The input's part of the gates."""
        return F.linear(x, self.weight_ih, self.bias_ih)

    def step_inputs(self, x: Tensor) -> Sequence[StepInput]:
        """Products and masks of a window of inputs, ``(T, N, F)``."""
        steps = super().step_inputs(x)
        masks = self.window_masks(self.p, self.locked_update, x, name="update")
        return [step._replace(update=mask) for step, mask in zip(steps, masks, strict=True)]

    def extra_repr(self) -> str:
        """The sizes and the dropout."""
        return f"{super().extra_repr()}, p={self.p}, locked_update={self.locked_update}"


class UpdateDropoutLSTMCell(UpdateDropoutCell):
    r""":math:`c_t = f \odot c_{t-1} + m \odot (i \odot g)`, with a mask m of mean one.

    Units of the memory c that are dropped keep what they have. The authors' code does not scale the
    mask while training and multiplies by 1 - p in evaluation. Here m is 0 or 1/(1 - p), so that the
    clean cell is torch's. (Semeniuta et al., *Recurrent Dropout without Memory Loss*, COLING 2016.)

    >>> cell = UpdateDropoutLSTMCell(2, 3, p=0.25)
    >>> h, c = cell(torch.zeros(1, 2))
    >>> h.shape
    torch.Size([1, 3])
    """

    slots = 4

    def project(self, x: Tensor) -> Tensor:
        """The input's part of the gates, with both biases."""
        return F.linear(x, self.weight_ih, self.bias_ih + self.bias_hh)

    def transition(self, x: StepInput, read: Tensor, state: States) -> States:
        """Torch's LSTM, whose update is masked."""
        i, f, g, o = recur(x.x, read, self.weight_hh).chunk(4, dim=-1)
        update = i.sigmoid() * g.tanh()
        c = f.sigmoid() * state[1] + (update if x.update is None else update * x.update)
        return o.sigmoid() * c.tanh(), c


class UpdateDropoutGRUCell(UpdateDropoutCell):
    r""":math:`h_t = u \odot h_{t-1} + (1 - u) \odot (m \odot n)`, with a mask m of mean one.

    The gates r, u and n are torch's. See :class:`UpdateDropoutLSTMCell`.

    >>> UpdateDropoutGRUCell(2, 3, p=0.25)(torch.zeros(1, 2)).shape
    torch.Size([1, 3])
    """

    memory = False
    slots = 3

    def transition(self, x: StepInput, read: Tensor, state: States) -> States:
        """Torch's GRU, whose candidate is masked."""
        r_x, u_x, n_x = x.x.chunk(3, dim=-1)
        r_h, u_h, n_h = F.linear(read, self.weight_hh, self.bias_hh).chunk(3, dim=-1)
        r, u = (r_x + r_h).sigmoid(), (u_x + u_h).sigmoid()
        n = (n_x + r * n_h).tanh()
        if x.update is not None:
            n = n * x.update
        return (n + u * (state[0] - n),)
