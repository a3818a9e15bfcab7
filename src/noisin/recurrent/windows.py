"""Windows: what a cell computes or draws once for all steps of a sequence.

A cell ``(x, state) -> state`` sees one step. Some need more: a mask that is constant over a window
has to be drawn when the window begins, statistics per step need the number of the step, and the
products of the weights with the inputs of all steps are faster as one product. Such a cell defines
a method::

    def step_inputs(self, x: Tensor) -> Sequence[Any]: ...

:func:`~noisin.unroll` calls it once with the inputs of all steps, ``(T, N, F)``. It returns T
values, and the cell is called with the t-th of them in place of ``x_t``. A cell that is called with
``x_t`` itself takes it for a window of one step. A wrapper around a cell passes the call on, by
``return step_inputs(self.cell, x)``.

A cell whose steps the kernels can compute may also define::

    def at_once(self, x: Tensor) -> WholeWindow | None: ...

It is called first, and returns a function ``(state, eps, mode) -> (z, state)`` that runs all steps
with noise that is fed back, ``(T, N, H)``, or None where the window must run step by step.

Nothing is kept in the module, so that gradient checkpointing, deep copies and threads are safe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from noisin._util import torch_state
from noisin.errors import InvalidValue
from noisin.recurrent.functional import Mode, State
from noisin.recurrent.samples import is_plain

WholeWindow = Callable[[State, Tensor, Mode], tuple[Tensor, State]]


class StepInput(NamedTuple):
    """What noisin's own cells take in place of ``x_t``.

    Attributes:
        x: the input's part of the gates, or ``x_t`` itself; dimensions but the last are the batch.
        read: the mask on the hidden state that the products read; None drops nothing.
        update: the mask on what the step adds to the state; None drops nothing.
        t: the number of the step in its window.
        last: the number of the last step with statistics of its own, for a cell that has some.
    """

    x: Tensor
    read: Tensor | None = None
    update: Tensor | None = None
    t: int = 0
    last: int = 0


def step_inputs(cell: object, x: Tensor) -> Sequence[Any]:
    """What to call a cell with at each step of a window ``(T, N, F)``.

    >>> import torch
    >>> [x_t.shape for x_t in step_inputs(torch.nn.LSTMCell(2, 3), torch.zeros(2, 1, 2))]
    [torch.Size([1, 2]), torch.Size([1, 2])]
    """
    if not callable(getattr(type(cell), "step_inputs", None)):
        return x.unbind(0)
    found: Sequence[Any] = cell.step_inputs(x)  # type: ignore[attr-defined]
    if len(found) != len(x):
        raise InvalidValue(
            f"{type(cell).__name__}: step_inputs must return one value for each of the {len(x)} "
            f"steps of x, got {len(found)}."
        )
    return found


def at_once(cell: object, x: Tensor, *around: nn.Module) -> WholeWindow | None:
    """What runs a whole window ``(T, N, F)`` of a cell, if anything does.

    Not where something else sees each step: hooks of the cell or of a module around it, the
    compiler and autocast.
    """
    if not isinstance(cell, nn.Module) or not callable(getattr(type(cell), "at_once", None)):
        return None
    if (
        torch_state.compiling()
        or torch_state.autocasting()
        or not all(map(is_plain, (cell, *around)))
    ):
        return None
    found: WholeWindow | None = cell.at_once(x)  # type: ignore[operator]
    return found
