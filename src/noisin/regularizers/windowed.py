"""The base of cells that see a window of inputs at once: products, masks and numbers of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from noisin._util import arguments, checks
from noisin.noise.sampling import Stochastic
from noisin.recurrent import drop_ins
from noisin.recurrent.functional import State, States
from noisin.recurrent.windows import StepInput
from noisin.regularizers.cells import check_rate


class WindowCell(Stochastic):
    """A cell ``(x, state) -> state`` with recurrent dropout, whose input products are one.

    A subclass defines :meth:`transition`, and :meth:`project` where it does more than a product.
    Its state is h, or ``(h, c)`` with a memory.

    Args:
        input_size, hidden_size: the sizes.
        p_h: the drop rate of the hidden state that the products read; a carry stays whole.
        locked: one mask for all steps of a window (Gal), or a fresh one at each step.
        generator: the random stream to draw from; None is torch's global one.
    """

    memory: ClassVar[bool] = True
    gain: ClassVar[float] = 1.0  # of a normalisation, before training

    weight_ih: nn.Parameter
    weight_hh: Any
    bias: nn.Parameter

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        p_h: float = 0.0,
        locked: bool = True,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.input_size = arguments.whole(f"{name}: input_size", input_size)
        self.hidden_size = arguments.whole(f"{name}: hidden_size", hidden_size)
        check_rate(f"{name}: p_h", p_h)
        checks.one_of(f"{name}: locked", locked, (True, False))
        checks.require_generator(name, generator)
        self.p_h = p_h
        self.locked = locked
        self.generator = generator

    @property
    def parts(self) -> int:
        """The number of tensors in its state."""
        return 1 + self.memory

    @property
    def acts(self) -> bool:
        """Whether anything is dropped at present."""
        return self.training and self.p_h > 0

    def _gates(self, slots: int) -> None:
        """Create the weights of so many gates."""
        H = self.hidden_size
        self.weight_ih = nn.Parameter(torch.empty(slots * H, self.input_size))
        self.weight_hh = nn.Parameter(torch.empty(slots * H, H))
        self.bias = nn.Parameter(torch.empty(slots * H))

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Weights uniform on ±1/√H, as in the paper; gains constant, biases zero."""
        bound = self.hidden_size**-0.5
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name.startswith("weight"):
                    parameter.uniform_(-bound, bound, generator=generator)
                else:
                    parameter.fill_(self.gain if name.startswith("gain") else 0.0)
            self._reset_biases()

    def _reset_biases(self) -> None:
        """Set the biases that do not start at zero."""

    def project(self, x: Tensor) -> Tensor:
        """The input's part of the gates, for all steps at once."""
        return F.linear(x, self.weight_ih, self.bias)

    def transition(self, x: StepInput, read: Tensor, state: States) -> States:
        """One step. Products read ``read``, the masked h; a carry is in ``state``."""
        raise NotImplementedError

    def step_inputs(self, x: Tensor) -> Sequence[StepInput]:
        """Products and masks of a window of inputs, ``(T, N, F)``."""
        drop_ins.cell_step(self, x[0])
        steps = zip(self.project(x).unbind(0), self._masks(x), strict=True)
        return [StepInput(x_t, mask, t=t) for t, (x_t, mask) in enumerate(steps)]

    def _masks(self, x: Tensor) -> Sequence[Tensor | None]:
        return self.window_masks(self.p_h, self.locked, x)

    def window_masks(
        self, p: float, locked: bool, x: Tensor, name: str = ""
    ) -> Sequence[Tensor | None]:
        """A mask, ``(N, H)``, for each step of a window; None where nothing is dropped."""
        if not self.training or p == 0:
            return [None] * len(x)
        shape = (*x.shape[:-1], self.hidden_size)
        drawn = self._mask(p, (1, *shape[1:]) if locked else shape, x, name=name)
        return drawn.expand(shape).unbind(0)

    def forward(self, x: Tensor | StepInput, state: State = None) -> State:
        """One step; of a window, x is what :meth:`step_inputs` returned for it."""
        if not isinstance(x, StepInput):
            checks.require_tensors(type(self).__name__, x=x)
            drop_ins.cell_step(self, x)
            (x,) = self.step_inputs(x.unsqueeze(0))
        parts = self._parts(x.x, state)
        read = parts[0] if x.read is None else parts[0] * x.read
        new = self.transition(x, read, parts)
        return new if self.memory else new[0]

    def _parts(self, x: Tensor, state: State) -> States:
        """The tensors of a state, or raise; None is zero."""
        shape, count = (*x.shape[:-1], self.hidden_size), 1 + self.memory
        if state is None:
            return (x.new_zeros(shape),) * count
        parts = checks.state_parts(type(self).__name__, state, count)
        drop_ins.cell_input(self, x, *parts)
        drop_ins.state_shapes(type(self).__name__, shape, *parts)
        return parts

    def extra_repr(self) -> str:
        """The sizes and the recurrent dropout."""
        shown = f"{self.input_size}, {self.hidden_size}"
        return shown if not self.p_h else f"{shown}, p_h={self.p_h}, locked={self.locked}"


def recur(x: Tensor, read: Tensor, weight: Tensor) -> Tensor:
    """``x + W h``, the gates before their nonlinearities."""
    return torch.addmm(x, read, weight.t()) if read.dim() == 2 else x + F.linear(read, weight)
