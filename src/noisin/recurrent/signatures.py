"""The types of calls, for editors and type checkers: torch's modules have none of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar, overload

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

State = TypeVar("State")
Keep = tuple[Tensor | float | None, Tensor | float | None]


class StackForward(Protocol[State]):
    """``(input, hx) -> (output, state)`` of a stack, where the output is of the input's kind."""

    @overload
    def __call__(
        self, input: Tensor, hx: State | None = None, *, eps: Tensor | None = None,
        weights: Mapping[str, Tensor] | None = None, read_mask: Tensor | None = None,
        keep: Keep | None = None, update_mask: Tensor | None = None, samples: int = 1,
    ) -> tuple[Tensor, State]: ...  # fmt: skip

    @overload
    def __call__(
        self, input: PackedSequence, hx: State | None = None, *, eps: Tensor | None = None,
        weights: Mapping[str, Tensor] | None = None, read_mask: Tensor | None = None,
        keep: Keep | None = None, update_mask: Tensor | None = None, samples: int = 1,
    ) -> tuple[PackedSequence, State]: ...  # fmt: skip


class CellForward(Protocol[State]):
    """``(x, state) -> state`` of a cell."""

    def __call__(
        self, x: Tensor, state: State | None = None, *, eps: Tensor | None = None
    ) -> State:
        """One step."""
