"""How torch lays out sequences, and the layout that noisin computes in.

Torch's RNNs take ``(T, N, F)``, ``(N, T, F)``, ``(T, F)`` or a PackedSequence. Inside, a batch is
``(T, N, F)``, or, where it came packed, the *rows* ``(S, F)`` of its S real steps: all of step 0
first, then those of step 1, and so on, longest sequence first. Padding has no rows, so nothing is
computed or drawn for it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from noisin._util import torch_state
from noisin.errors import InvalidTensor, InvalidValue


def require_sizes(name: str, sizes: Sequence[int], least: int = 0) -> None:
    """Raise unless a batch can have so many rows at its steps: never more than the step before."""
    whole = all(isinstance(n, int) for n in sizes)
    if not whole or not sizes or list(sizes) != sorted(sizes, reverse=True) or sizes[-1] < least:
        raise InvalidValue(
            f"{name}: expected the number of rows of each step, none less than {least} and none "
            f"greater than the one before, got {reprlib.repr(sizes)}. Pack with "
            f"pack_padded_sequence."
        )


@dataclass(frozen=True)
class Layout:
    """The layout of one input: T steps of N sequences, and how to give results back."""

    T: int
    N: int
    batch_first: bool = False
    batched: bool = True
    packed: PackedSequence | None = None

    @classmethod
    def of(cls, input: Tensor | PackedSequence, batch_first: bool) -> Layout:
        """Read the layout of an RNN's input."""
        if isinstance(input, PackedSequence):
            return cls._of_packed(input)
        if input.dim() not in (2, 3):
            raise InvalidValue(
                f"RNN: expected an input of 2 dimensions (T, F) or 3 (a batch), got "
                f"{input.dim()} with shape {tuple(input.shape)}. Reshape the input."
            )
        batched = input.dim() == 3
        time = 1 if batched and batch_first else 0
        T, N = input.shape[time], input.shape[1 - time] if batched else 1
        if T == 0:
            raise InvalidTensor(
                f"RNN: expected at least one time step, got an input of shape "
                f"{tuple(input.shape)}. Drop empty sequences."
            )
        return cls(T, N, batch_first, batched)

    @classmethod
    def _of_packed(cls, packed: PackedSequence) -> Layout:
        if torch_state.compiling():  # the values, which the compiler does not know, are not checked
            order = packed.sorted_indices
            N = int(packed.batch_sizes[0]) if order is None else order.shape[0]
            return cls(packed.batch_sizes.shape[0], N, packed=packed)
        sizes = tuple(packed.batch_sizes.tolist())
        require_sizes("RNN: the batch_sizes of a PackedSequence", sizes, least=1)
        if sum(sizes) != len(packed.data):
            raise InvalidValue(
                f"RNN: a PackedSequence has {len(packed.data)} rows of data, and its batch_sizes "
                f"add up to {sum(sizes)}. Pack with pack_padded_sequence."
            )
        return cls(len(sizes), sizes[0], packed=packed)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many rows each step has, as numbers."""
        if self.packed is None:
            return (self.N,) * self.T
        return tuple(self.packed.batch_sizes.tolist())

    @property
    def lead(self) -> tuple[int, ...]:
        """The shape of all real steps: (T, N), or (S,) where packed."""
        return (self.T, self.N) if self.packed is None else (self.packed.data.shape[0],)

    def enter(self, input: Tensor | PackedSequence) -> Tensor:
        """An input in the layout that we compute in."""
        if isinstance(input, PackedSequence):
            return input.data
        if not self.batched:
            return input.unsqueeze(1)
        return input.transpose(0, 1) if self.batch_first else input

    def leave(self, x: Tensor) -> Tensor | PackedSequence:
        """The inverse of :meth:`enter`."""
        if self.packed is not None:
            p = self.packed
            return PackedSequence(x, p.batch_sizes, p.sorted_indices, p.unsorted_indices)
        if not self.batched:
            return x.squeeze(1)
        return x.transpose(0, 1) if self.batch_first else x

    def enter_state(self, state: Tensor) -> Tensor:
        """A caller's ``(layers, N, F)`` with the longest sequence first."""
        if not self.batched:
            return state.unsqueeze(1)
        indices = None if self.packed is None else self.packed.sorted_indices
        return state if indices is None else state.index_select(1, indices)

    def leave_state(self, state: Tensor) -> Tensor:
        """The inverse of :meth:`enter_state`."""
        if not self.batched:
            return state.squeeze(1)
        indices = None if self.packed is None else self.packed.unsorted_indices
        return state if indices is None else state.index_select(1, indices)

    def enter_steps(self, values: Tensor) -> Tensor:
        """A caller's ``(layers, T, N, F)``, without its padding where packed."""
        if not self.batched:
            return values.unsqueeze(2)
        if self.packed is None:
            return values
        if self.packed.sorted_indices is not None:
            values = values.index_select(2, self.packed.sorted_indices)
        return torch.cat([values[:, t, :n] for t, n in enumerate(self.sizes)], dim=1)

    def leave_steps(self, values: Tensor) -> Tensor:
        """The inverse of :meth:`enter_steps`, with zeros for padding."""
        if not self.batched:
            return values.squeeze(2)
        if self.packed is None:
            return values
        return torch.stack([pad_packed_sequence(self.leave(value))[0] for value in values])  # type: ignore[arg-type]

    def steps(self, x: Tensor) -> tuple[Tensor, ...]:
        """A sequence cut into its steps."""
        return x.unbind(0) if self.packed is None else torch.split(x, list(self.sizes))

    def join(self, steps: Sequence[Tensor]) -> Tensor:
        """The inverse of :meth:`steps`."""
        return torch.stack(list(steps)) if self.packed is None else torch.cat(list(steps))

    def hold(self, x: Tensor) -> Tensor:
        """A value ``(N, F)`` that each sequence has at all its steps."""
        if self.packed is None:
            return x.repeat(self.T, 1, 1)
        return self.join([x[:n] for n in self.sizes])
