"""What a step reads and where a sequence ends, against a loop over the sequences."""

from __future__ import annotations

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence

import noisin
from noisin import noise
from noisin.recurrent.cell import KERNEL_CELLS as CELLS
from noisin.recurrent.kernels.plan import Plan, cached

lengths = st.lists(st.integers(1, 6), min_size=1, max_size=7)


def sizes_of(lengths: list[int]) -> tuple[int, ...]:
    """The number of sequences at each step."""
    return tuple(sum(length > t for length in lengths) for t in range(max(lengths)))


@hypothesis.given(lengths, st.booleans())
def test_every_row_reads_the_one_before_it(lengths: list[int], reverse: bool) -> None:
    """And all sequences end where they end. Sequences are longest first, as in a PackedSequence."""
    lengths = sorted(lengths, reverse=True)
    plan = Plan(CELLS["lstm"], "multiplicative", sizes_of(lengths), reverse)
    steps = torch.arange(float(sum(lengths))).unsqueeze(1)
    initial = -1 - torch.arange(float(len(lengths))).unsqueeze(1)
    expected, last = torch.empty_like(steps), torch.empty_like(initial)
    for n, length in enumerate(lengths):
        rows = [plan.offsets[t] + n for t in range(length)]
        rows = rows[::-1] if reverse else rows
        before = [initial[n], *steps[rows[:-1]]]
        for row, value in zip(rows, before, strict=True):
            expected[row] = value
        last[n] = steps[rows[-1]]
    assert torch.equal(plan.shift(steps, initial), expected)
    assert torch.equal(plan.last(steps), last)
    for i, t in enumerate(plan.order):
        assert torch.equal(plan.before(i, steps, initial), expected[plan.rows(t)])


@pytest.mark.parametrize("sizes", [(), (2, 3), (2, -1)])
def test_the_cache_of_plans_refuses_what_a_plan_does(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="Plan: expected the number of rows"):
        cached(CELLS["lstm"], "multiplicative", sizes, False)


def test_a_plan_is_made_once_for_a_shape() -> None:
    one, other = (cached(CELLS["lstm"], "additive", (3, 2), reverse) for reverse in (False, True))
    assert cached(CELLS["lstm"], "additive", (3, 2), False) is one
    assert other is not one
    assert other.reverse


@pytest.mark.parametrize("build", [True, False])
def test_a_plan_of_inference_serves_training(build: bool) -> None:
    """Its indices are remembered, and training saves them for its backward pass."""
    cached.cache_clear()
    rnn = noisin.LSTM(5, 7, noise=noise.Gaussian(0.5))
    packed = pack_padded_sequence(torch.randn(4, 3, 5), [4, 2, 1])
    if build:
        with torch.inference_mode(), noisin.noise_on(rnn):
            rnn(packed)
    z, (h, _) = rnn(packed)
    (z.data.sum() + h.sum()).backward()
    assert all(p.grad is not None for p in rnn.parameters())
