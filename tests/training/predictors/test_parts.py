"""The part of a split that settings are compared on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
import torch

from noisin.data import Batch, Windows
from noisin.tasks.sequences import Sequences, Steps
from noisin.training.predictors.parts import part_of

LENGTHS = [*range(10, 110, 2)]  # 50 sequences of 2,950 steps


def sequences(lengths: Sequence[int], batch_size: int) -> Sequences:
    made = [
        Steps(np.full((n, 1), n, np.float32), np.zeros((n, 1), np.float32), np.ones(n, bool))
        for n in lengths
    ]
    splits = {"train": made[:1], "valid": made, "test": made}
    return Sequences(splits, batch_size=1, eval_batch_size=batch_size)


@pytest.mark.parametrize("batch_size", [1, 7, 50])
def test_of_sequences_it_has_whole_ones_of_all_lengths(batch_size: int) -> None:
    task = sequences(LENGTHS[::-1], batch_size)
    found = list(part_of(partial(task.batches, "valid"), 600))
    lengths = torch.cat([batch.x.amax((0, 2)) for batch in found]).tolist()
    assert lengths == LENGTHS[2::4]
    assert sum(batch.count for batch in found) == sum(lengths)
    assert all((batch.scored.sum(0) == batch.x.amax((0, 2))).all() for batch in found)


def test_a_sequence_that_is_scored_in_windows_is_whole() -> None:
    task = sequences([10, 20, 5000, 30, 6000], 1)
    found = list(part_of(partial(task.batches, "test"), 5000))
    assert [(len(b.x), b.carries) for b in found] == [(20, False), (4096, False), (904, True)]


def test_of_one_long_sequence_it_has_the_first_rows() -> None:
    task = sequences([5000], 3)
    (found,) = part_of(partial(task.batches, "valid"), 600)
    assert (len(found.x), found.count, found.carries) == (600, 600, False)


def test_of_a_stream_it_has_the_first_rows() -> None:
    windows = Windows(np.arange(1000), batch_size=4, length=10)
    found: list[Batch] = list(part_of(lambda: windows.epoch(0), 50))
    assert [len(batch.x) for batch in found] == [10, 3]
    assert all(batch.carries for batch in found)


def test_all_of_it_where_it_has_fewer_targets() -> None:
    task = sequences(LENGTHS, 7)
    found = part_of(partial(task.batches, "valid"), 10**15)
    assert sum(batch.count for batch in found) == sum(LENGTHS)
