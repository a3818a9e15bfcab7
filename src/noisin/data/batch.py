"""Windows for truncated backpropagation: the token stream in columns, a few rows at a time.

::

    ids  0 1 2 3 4 5 6 7 8 9 10      N = 2 columns of 5, the tail dropped
         0 5   x       1 6           a window of T = 2 rows starting at 0:
         1 6           2 7  target   the target is the next row
         2 7
         3 8
         4 9
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from noisin._util import arguments, checks
from noisin.data.cache import Ids, require_ids
from noisin.errors import InvalidType, InvalidValue

SHORTEST = 5  # variable length
SPREAD = 5.0
LARGEST_EPOCH = 2**32 - 1  # numpy takes its seed in words of 32 bits
HALF = 0.05  # probability that a variable length is around half of the usual one


@dataclass(frozen=True)
class Batch:
    """Inputs and targets: the only type that is passed from data to models.

    Attributes:
        x: inputs, ``(T, N, ...)``: word ids ``(T, N)`` or values ``(T, N, F)``.
        target: the targets, ``(T, N, ...)``.
        scored: which targets are scored, ``(T, N)``; None scores all. Padding is not scored.
        start, stop: the position in the epoch before and after this batch, for resuming.
        carries: whether the state continues from the batch before; if not, it starts from zero.
        lr_scale: a factor of the learning rate, for batches of unequal length.
        padded: whether what follows the last scored target of a column is padding, so that neither
            its predictions nor the state after it are used.
    """

    x: Tensor
    target: Tensor
    scored: Tensor | None = None
    start: int = 0
    stop: int = 0
    carries: bool = True
    lr_scale: float = 1.0
    padded: bool = False

    def __post_init__(self) -> None:
        parts = {"x": self.x, "target": self.target}
        parts |= {} if self.scored is None else {"scored": self.scored}
        checks.require_tensors("Batch", **parts)
        shapes = {tuple(part.shape[:2]) for part in parts.values()}
        if len(shapes) != 1 or self.x.dim() < 2:
            given = ", ".join(f"{name} {tuple(part.shape)}" for name, part in parts.items())
            raise InvalidValue(
                f"Batch: expected x and target of shape (T, N, ...) and scored (T, N), with equal "
                f"T and N, got {given}. Time comes first."
            )
        if self.scored is not None and (self.scored.dtype != torch.bool or self.scored.dim() != 2):
            raise InvalidType(
                f"Batch: scored must be a boolean tensor (T, N), got {self.scored.dtype} of shape "
                f"{tuple(self.scored.shape)}. Compare it with zero: scored != 0."
            )

    @property
    def count(self) -> int:
        """The number of scored targets."""
        if self.scored is not None:
            return int(self.scored.sum())
        return math.prod(self.target.shape[:2])

    @property
    def lengths(self) -> Tensor | None:
        """The steps of each column before its padding, at least 1, ``(N,)``; None if all are T.

        >>> scored = torch.tensor([[True, False], [True, True], [False, True]])
        >>> Batch(torch.zeros(3, 2), torch.zeros(3, 2), scored, padded=True).lengths
        tensor([2, 3])
        """
        if not self.padded or self.scored is None:
            return None
        steps = torch.arange(1, len(self.scored) + 1, device=self.scored.device)
        lengths = (steps[:, None] * self.scored).amax(0).clamp_(min=1)
        return lengths if bool((lengths < len(steps)).any()) else None

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        return self._map(lambda part: part.to(device))

    def columns(self, own: slice) -> Batch:
        """Some of the N columns."""
        return self._map(lambda part: part[:, own])

    def rows(self, own: slice) -> Batch:
        """Some of the T rows. Unless they are the last ones, the next continue from their state."""
        part = self._map(lambda part: part[own])
        return replace(part, padded=self.padded and len(self.x) - 1 in range(len(self.x))[own])

    def followed_by(self, after: Batch) -> Batch:
        """This batch and the one that continues it, as one."""
        both = [self, after]
        scored = None
        if self.scored is not None or after.scored is not None:
            scored = torch.cat([_all(b.target) if b.scored is None else b.scored for b in both])
        x, target = torch.cat([b.x for b in both]), torch.cat([b.target for b in both])
        stop, padded = after.stop, after.padded
        return replace(self, x=x, target=target, scored=scored, stop=stop, padded=padded)

    def repeat(self, K: int) -> Batch:
        """K copies of all columns, side by side: one for each noise sample."""
        if K == 1:
            return self
        return self._map(lambda part: part.repeat(1, K, *[1] * (part.dim() - 2)))

    def first_step(self) -> Batch:
        """The first time step alone."""
        return self._map(lambda part: part[:1])

    def _map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        scored = None if self.scored is None else function(self.scored)
        return replace(self, x=function(self.x), target=function(self.target), scored=scored)


def _all(target: Tensor) -> Tensor:
    return torch.ones(target.shape[:2], dtype=torch.bool, device=target.device)


class Windows:
    """The token stream as N columns, read in order, T rows at a time, with a state to carry.

    Column n is the n-th part of the stream; the tail that does not fill a row is dropped. The
    windows of an epoch, concatenated, are the columns. With ``variable`` the lengths vary as in
    AWD-LSTM: normal around ``length`` (with probability 0.05 around half of it) with standard
    deviation 5, at least 5; they depend only on ``(seed, epoch)``. The position in an epoch is
    therefore one number, the ``stop`` of the last window, and ``epoch(e, start=stop)`` continues
    from there.

    With ``partial_shuffle`` (Press, 2019) each column is rotated at a random row in every epoch,
    its end followed by its beginning, so that the batches are not the same in all epochs. The rows
    depend only on ``(seed, epoch)`` too.

    >>> for w in Windows(np.arange(11), batch_size=2, length=3).epoch(0):
    ...     print(w.x.tolist(), w.target.tolist(), w.start, w.stop)
    [[0, 5], [1, 6], [2, 7]] [[1, 6], [2, 7], [3, 8]] 0 3
    [[3, 8]] [[4, 9]] 3 4
    """

    def __init__(
        self,
        ids: Ids,
        batch_size: int,
        length: int,
        *,
        variable: bool = False,
        partial_shuffle: bool = False,
        seed: int = 1111,
    ) -> None:
        arguments.whole("Windows: batch_size", batch_size)
        arguments.whole("Windows: length", length)
        arguments.whole("Windows: seed", seed, 0)
        arguments.boolean("Windows: variable", variable)
        arguments.boolean("Windows: partial_shuffle", partial_shuffle)
        require_ids("Windows", ids)
        height = len(ids) // batch_size
        if height < 2:
            raise InvalidValue(
                f"Windows: {len(ids)} tokens are too few for {batch_size} columns, which need "
                f"{2 * batch_size} or more. Use a smaller batch or a longer text."
            )
        self._columns = ids[: height * batch_size].reshape(batch_size, height)  # a view
        self.batch_size, self.length, self.variable, self.seed = batch_size, length, variable, seed
        self.partial_shuffle = partial_shuffle
        self.rows = height - 1

    @property
    def tokens(self) -> int:
        """The number of targets in an epoch."""
        return self.rows * self.batch_size

    def __len__(self) -> int:
        if self.variable:
            raise InvalidType(
                "Windows: with variable=True the number of windows depends on the epoch."
            )
        return -(-self.rows // self.length)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The windows of an epoch from row ``start``, which is 0 or the ``stop`` of a window."""
        if arguments.whole("Windows: epoch", epoch, 0) > LARGEST_EPOCH:
            raise InvalidValue(f"Windows: epoch must be {LARGEST_EPOCH} or less, got {epoch!r}.")
        bounds = [0, *self._stops(epoch)]
        if not isinstance(start, int) or start not in bounds:
            raise InvalidValue(
                f"Windows: no window of epoch {epoch} starts at row {start!r:.60}. Pass the stop "
                f"of the window before it, from windows of the same text, sizes and seed."
            )
        left = bounds[bounds.index(start) :]
        first = self._first_rows(epoch)
        return (self._window(a, b, first) for a, b in pairwise(left))

    def _random(self, *epoch: int) -> np.random.RandomState:
        # RandomState, because numpy guarantees that its stream never changes.
        return np.random.RandomState([self.seed & (2**32 - 1), self.seed >> 32, *epoch])

    def _first_rows(self, epoch: int) -> np.ndarray | None:
        """The row at which each column starts in an epoch; None if all start at the first."""
        if not self.partial_shuffle:
            return None
        return self._random(epoch, 1).randint(self.rows + 1, size=(self.batch_size, 1))

    def _stops(self, epoch: int) -> Iterator[int]:
        random = self._random(epoch)
        stop = 0
        while stop < self.rows:
            T = self.length
            if self.variable:
                usual = T / 2 if random.random_sample() < HALF else T
                T = max(SHORTEST, int(random.normal(usual, SPREAD)))
            stop = min(stop + T, self.rows)
            yield stop

    def _window(self, start: int, stop: int, first: np.ndarray | None) -> Batch:
        columns = self._columns[:, start : stop + 1]
        if first is not None:
            rotated = (first + np.arange(start, stop + 1)) % (self.rows + 1)
            columns = np.take_along_axis(self._columns, rotated, axis=1)
        rows = np.ascontiguousarray(columns.T, dtype=np.int64)
        both = torch.from_numpy(rows)
        scale = (stop - start) / self.length if self.variable else 1.0
        return Batch(both[:-1], both[1:], start=start, stop=stop, lr_scale=scale)
