"""Sequences of steps: padded batches, in random order for training, each from a zero state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from noisin._util import arguments
from noisin.data import Batch
from noisin.errors import InvalidValue
from noisin.tasks.base import Split

LARGEST_SEED = 2**32 - 1  # numpy takes its seed in words of 32 bits
EVAL_ROWS = 4096  # rows to score at a time; only a posterior that reads the future depends on it


class Steps(NamedTuple):
    """A sequence: what is read, predicted and scored at each of its T steps.

    Attributes:
        x: inputs, ``(T, F)``.
        target: targets, ``(T, O)``.
        scored: whether a target is scored, ``(T,)``.
    """

    x: NDArray[Any]
    target: NDArray[Any]
    scored: NDArray[np.bool_]

    def part(self, start: int, stop: int) -> Steps:
        """Some of the steps."""
        return Steps(*(array[start:stop] for array in self))


class Sequences:
    """A task on sequences, which are padded to equal length; the padding is not scored.

    Args:
        sequences: those of ``"train"``, ``"valid"`` and ``"test"``.
        batch_size, eval_batch_size: sequences in a batch.
        longest: a longer sequence is cut into parts of equal length for training, as in truncated
            backpropagation; each starts from a zero state. None keeps whole sequences.
        clean_steps: how much of the training data to score without noise after every epoch: whole
            sequences, at least one unless it is 0.
        seed: the seed of the order of the sequences, which depends only on seed and epoch.
    """

    def __init__(
        self,
        sequences: Mapping[str, Sequence[Steps]],
        *,
        batch_size: int,
        eval_batch_size: int,
        longest: int | None = None,
        clean_steps: int = 100_000,
        seed: int = 1111,
    ) -> None:
        name = type(self).__name__
        self.batch_size = arguments.whole(f"{name}: batch_size", batch_size)
        self.eval_batch_size = arguments.whole(f"{name}: eval_batch_size", eval_batch_size)
        self.seed = arguments.whole(f"{name}: seed", seed, 0)
        if seed > LARGEST_SEED:
            raise InvalidValue(f"{name}: seed must be {LARGEST_SEED} or less, got {seed}.")
        if longest is not None:
            arguments.whole(f"{name}: bptt", longest)
        clean = _first(sequences["train"], arguments.whole(f"{name}: clean_steps", clean_steps, 0))
        self._scored = {**sequences, **({"train_clean": clean} if clean else {})}
        self._train = [part for steps in sequences["train"] for part in cut(steps, longest)]
        self.splits: tuple[Split, ...] = ("train", "valid", "test")
        self.splits += ("train_clean",) if clean else ()
        self.extent = len(self._train)
        self.identity = {n: getattr(self, n) for n in ("batch_size", "eval_batch_size", "seed")}
        self.identity |= {} if longest is None else {"longest": longest}

    def batches(self, split: Split, *, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Batches of sequences; those of train are shuffled in every epoch."""
        if split != "train":
            yield from self._evaluated(self._scored[split])
            return
        order, size = np.arange(len(self._train)), self.batch_size
        np.random.RandomState([self.seed, epoch]).shuffle(order)
        for a in range(start, len(order), size):
            chosen = [self._train[i] for i in order[a : a + size]]
            yield replace(padded(chosen), start=a, stop=min(a + size, len(order)))

    def _evaluated(self, sequences: Sequence[Steps]) -> Iterator[Batch]:
        """Whole sequences, the short ones first; the state is carried along one that is very long.

        Sequences of about the same length need little padding.
        """
        size, sequences = self.eval_batch_size, sorted(sequences, key=lambda steps: len(steps.x))
        for a in range(0, len(sequences), size):
            batch = padded(sequences[a : a + size])
            for row in range(0, len(batch.x), EVAL_ROWS):
                yield replace(batch.rows(slice(row, row + EVAL_ROWS)), carries=row > 0)


def padded(sequences: Sequence[Steps]) -> Batch:
    """Sequences side by side, from a zero state. Padding is zero, comes last, and is not scored.

    >>> lengths = (1, 3)
    >>> ones = [Steps(np.ones((n, 1)), np.ones((n, 2)), np.ones(n, bool)) for n in lengths]
    >>> padded(ones).scored.long().tolist()
    [[1, 1], [0, 1], [0, 1]]
    """
    T, N = max(len(steps.x) for steps in sequences), len(sequences)
    x = torch.zeros(T, N, sequences[0].x.shape[1])
    target = torch.zeros(T, N, sequences[0].target.shape[1])
    scored = torch.zeros(T, N, dtype=torch.bool)
    for n, steps in enumerate(sequences):
        for whole, part in zip((x, target, scored), steps, strict=True):
            whole[: len(part), n] = torch.from_numpy(part)
    return Batch(x, target, scored, carries=False, padded=True)


def cut(steps: Steps, longest: int | None) -> Iterator[Steps]:
    """A sequence in as few parts of nearly equal length as none is longer than ``longest``."""
    T = len(steps.x)
    count = 1 if longest is None else -(-T // longest)
    bounds = [T * i // count for i in range(count + 1)]
    return (steps.part(a, b) for a, b in pairwise(bounds))


def _first(sequences: Sequence[Steps], most: int) -> list[Steps]:
    """The first sequences, with at most so many steps in total, or the first one alone."""
    if not most:
        return []
    steps = np.cumsum([len(sequence.x) for sequence in sequences])
    return list(sequences[: max(1, int(np.searchsorted(steps, most, side="right")))])
