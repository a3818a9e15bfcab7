"""What a kernel computes: one noisy layer in one direction, over all time steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from noisin.recurrent.cell import CellSpec
from noisin.recurrent.functional import Mode
from noisin.recurrent.layout import require_sizes


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
        parts = {t: self.before(i, steps, initial) for i, t in enumerate(self.order)}
        return torch.cat([parts[t] for t in range(len(self.sizes))])

    def last(self, steps: Tensor) -> Tensor:
        """The final row of every sequence."""
        if self.reverse:
            return steps[: self.N]
        if self.sizes[-1] == self.N:
            return steps[self.offsets[-2] :]
        final = [0] * self.N
        for t, n in enumerate(self.sizes):
            final[:n] = range(self.offsets[t], self.offsets[t] + n)
        return steps.index_select(0, torch.tensor(final, device=steps.device))
