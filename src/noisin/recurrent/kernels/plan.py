"""What a kernel computes: one noisy layer in one direction, over all time steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate

import torch
from torch import Tensor

from noisin.errors import InvalidValue
from noisin.recurrent.cell import CellSpec
from noisin.recurrent.functional import Mode
from noisin.recurrent.layout import require_sizes


@dataclass(frozen=True)
class Outline:
    """A plan before its sizes are numbers: while torch.compile or torch.export traces a layer.

    Without ``batch_sizes`` every step has as many rows as the initial state, so the sizes follow
    from the shapes of the tensors. Of a PackedSequence they are the values of that tensor.
    """

    cell: CellSpec
    mode: Mode
    batch_sizes: Tensor | None = None
    reverse: bool = False

    def sized(self, rows: int, N: int) -> Plan:
        """The plan of so many rows in N sequences."""
        if self.batch_sizes is not None:
            return Plan(self.cell, self.mode, tuple(self.batch_sizes.tolist()), self.reverse)
        if N == 0 or rows == 0 or rows % N:
            raise InvalidValue(
                f"kernels: expected as many rows at each step as the state has, {N}, got {rows} "
                f"rows. Pass batch_sizes for sequences of several lengths."
            )
        return Plan(self.cell, self.mode, (N,) * (rows // N), self.reverse)

    def last(self, steps: Tensor, N: int) -> Tensor:
        """The final row of each of N sequences."""
        if self.reverse:
            return steps[:N]
        if self.batch_sizes is None:
            return steps[steps.shape[0] - N :]
        sizes = self.batch_sizes.to(steps.device)
        sequence = torch.arange(N, device=steps.device)
        length = (sizes.unsqueeze(1) > sequence).sum(0)
        return steps.index_select(0, (sizes.cumsum(0) - sizes)[length - 1] + sequence)


@dataclass(frozen=True)
class Plan:
    """One layer in one direction: its cell, its noise, and how many rows each step has.

    Sequences are *rows* ``(S, ...)``: those of step 0, then those of step 1, and so on. A step may
    have fewer rows than the one before it, never more.
    """

    cell: CellSpec
    mode: Mode
    sizes: tuple[int, ...]
    reverse: bool = False

    def __post_init__(self) -> None:
        require_sizes("Plan", self.sizes)

    @property
    def N(self) -> int:  # noqa: N802
        """The number of sequences."""
        return self.sizes[0]

    @property
    def outline(self) -> Outline:
        """The same with its sizes as a tensor, where not all steps have N rows."""
        ragged = self.sizes[-1] != self.N
        sizes = torch.tensor(self.sizes) if ragged else None
        return Outline(self.cell, self.mode, sizes, self.reverse)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where the rows of each step start, and where the last ones end."""
        return (0, *accumulate(self.sizes))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The steps in the order of the recurrence."""
        steps = range(len(self.sizes))
        return tuple(reversed(steps) if self.reverse else steps)

    def rows(self, t: int) -> slice:
        """The rows of step t."""
        return slice(self.offsets[t], self.offsets[t + 1])

    def before(self, i: int, steps: Tensor, initial: Tensor) -> Tensor:
        """What the i-th step of the recurrence reads: the step before it.

        Where time runs backward, short sequences begin in mid-course, with their initial state.
        """
        n = self.sizes[self.order[i]]
        if i == 0:
            return initial[:n]
        before = steps[self.rows(self.order[i - 1])]
        return before[:n] if len(before) >= n else torch.cat([before, initial[len(before) : n]])

    def shift(self, steps: Tensor, initial: Tensor) -> Tensor:
        """What every step reads, as rows."""
        if self.sizes[-1] == self.N:
            end = len(steps) - self.N
            return torch.cat([steps[self.N :], initial] if self.reverse else [initial, steps[:end]])
        before, first, sequences = (index.to(steps.device) for index in self._indices)
        shifted = steps.index_select(0, before)
        return shifted.index_copy_(0, first, initial.index_select(0, sequences))

    def last(self, steps: Tensor) -> Tensor:
        """The final row of every sequence."""
        if self.reverse:
            return steps[: self.N]
        if self.sizes[-1] == self.N:
            return steps[self.offsets[-2] :]
        return steps.index_select(0, self._final.to(steps.device))

    # The indices outlive a call under inference mode, and training could not save tensors of it.
    @cached_property
    @torch.inference_mode(mode=False)
    def _indices(self) -> tuple[Tensor, Tensor, Tensor]:
        """The row that each row reads; the rows that read an initial one; and whose that is."""
        sizes, offsets = torch.tensor(self.sizes), torch.tensor(self.offsets)
        steps = torch.arange(len(self.sizes)).repeat_interleave(sizes)
        sequences = torch.arange(self.offsets[-1]) - offsets[steps]
        earlier = steps + (1 if self.reverse else -1)
        inside = (earlier >= 0) & (earlier < len(self.sizes))
        earlier = torch.where(inside, earlier, 0)
        starts = ~inside | (sequences >= sizes[earlier])
        before = torch.where(starts, 0, offsets[earlier] + sequences)
        first = starts.nonzero().flatten()
        return before, first, sequences[first]

    @cached_property
    @torch.inference_mode(mode=False)
    def _final(self) -> Tensor:
        """The last row of every sequence."""
        sizes, sequences = torch.tensor(self.sizes), torch.arange(self.N)
        lengths = torch.searchsorted(-sizes, -sequences)  # steps with more rows than its number
        return torch.tensor(self.offsets)[lengths - 1] + sequences


# The same plan for every batch of a shape: its checks and offsets are computed once. Batches of
# packed sequences rarely repeat a shape, and their plans have an index for each row.
cached = lru_cache(maxsize=32)(Plan)
