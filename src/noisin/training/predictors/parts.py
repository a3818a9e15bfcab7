"""A part of a split, to compare settings on in less time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from noisin.data import Batch

Batches = Callable[[], Iterable[Batch]]


def part_of(batches: Batches, targets: int) -> Iterator[Batch]:
    """About so many targets: the first rows of a stream, or whole sequences of all lengths.

    Of sequences it is each k-th one, because batches may have them in the order of their lengths.
    Of a single long one it is its first rows.
    """
    total = sum(batch.count for batch in batches())
    sequences = sum(batch.x.shape[1] for batch in batches() if not batch.carries)
    k = min(max(1, total // targets), sequences)
    if not k:
        return first(batches(), targets)
    chosen = every(k, batches())
    return first(chosen, targets) if k == sequences else chosen


def first(batches: Iterable[Batch], targets: int) -> Iterator[Batch]:
    """The first rows of some batches, with so many targets or a few more."""
    left = targets
    for batch in batches:
        rows = max(1, -(-left // batch.x.shape[1]))
        part = batch.rows(slice(0, rows))
        yield replace(part, carries=batch.carries)
        left -= part.count
        if left <= 0:
            return


def every(k: int, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Each k-th sequence, from the middle of the first k on; with all its rows."""
    seen, own = 0, slice(0, 0)
    for batch in batches:
        N = batch.x.shape[1]
        if not batch.carries:
            own = slice((k // 2 - seen) % k, None, k)
            seen += N
        if own.start < N:
            yield batch.columns(own)
