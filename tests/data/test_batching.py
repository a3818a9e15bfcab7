"""Windows: put together they are the stream, and an epoch can be taken up anywhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from noisin.data import Windows
from noisin.data.batch import SHORTEST
from noisin.errors import InvalidType, InvalidValue, NoisinError

SETTINGS = st.tuples(
    st.integers(2, 400),
    st.integers(1, 12),
    st.integers(1, 40),
    st.booleans(),
    st.integers(0, 2**40),
).filter(lambda s: s[0] >= 2 * s[1])


def columns(size: int, N: int) -> torch.Tensor:
    """The stream 0, 1, ... as columns, by the plain definition."""
    height = size // N
    return torch.tensor([[n * height + t for n in range(N)] for t in range(height)])


@settings(deadline=None, derandomize=True)
@given(SETTINGS, st.integers(0, 3))
def test_together_they_are_the_stream(sizes: tuple[int, int, int, bool, int], epoch: int) -> None:
    size, N, length, variable, seed = sizes
    windows = Windows(np.arange(size, dtype=np.int32), N, length, variable=variable, seed=seed)
    parts = list(windows.epoch(epoch))
    stream = columns(size, N)
    torch.testing.assert_close(torch.cat([w.x for w in parts]), stream[:-1])
    torch.testing.assert_close(torch.cat([w.target for w in parts]), stream[1:])
    assert sum(w.target.numel() for w in parts) == windows.tokens == windows.rows * N
    assert [w.start for w in parts] == [0, *(w.stop for w in parts[:-1])]
    assert parts[-1].stop == windows.rows
    for w in parts:
        assert w.x.shape == w.target.shape == (w.stop - w.start, N)
        assert w.x.dtype == w.target.dtype == torch.int64
        assert w.x.is_contiguous()
    if not variable:
        assert len(windows) == len(parts)
        assert all(len(w.x) == length for w in parts[:-1])
    elif length >= SHORTEST:
        assert all(len(w.x) >= SHORTEST for w in parts[:-1])


@settings(deadline=None, derandomize=True)
@given(SETTINGS, st.integers(0, 3), st.data())
def test_an_epoch_goes_on_from_any_stop(
    sizes: tuple[int, int, int, bool, int], epoch: int, draw: st.DataObject
) -> None:
    size, N, length, variable, seed = sizes
    ids = np.arange(size, dtype=np.int32)
    whole = list(Windows(ids, N, length, variable=variable, seed=seed).epoch(epoch))
    done = draw.draw(st.integers(0, len(whole)))
    start = whole[done - 1].stop if done else 0
    rest = list(Windows(ids, N, length, variable=variable, seed=seed).epoch(epoch, start))
    assert [(w.start, w.stop) for w in rest] == [(w.start, w.stop) for w in whole[done:]]
    for a, b in zip(rest, whole[done:], strict=True):
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.target, b.target)


@settings(deadline=None, derandomize=True)
@given(SETTINGS, st.integers(0, 3), st.data())
def test_a_partial_shuffle_rotates_each_column(
    sizes: tuple[int, int, int, bool, int], epoch: int, draw: st.DataObject
) -> None:
    """Every column has its own words in their order, up to where it starts; so has the rest."""
    size, N, length, variable, seed = sizes
    ids = np.arange(size, dtype=np.int32)
    options = {"variable": variable, "seed": seed}
    windows = Windows(ids, N, length, **options, partial_shuffle=True)
    parts = list(windows.epoch(epoch))
    plain = list(Windows(ids, N, length, **options).epoch(epoch))
    assert [(w.start, w.stop) for w in parts] == [(w.start, w.stop) for w in plain]
    rows = torch.cat([w.x for w in parts] + [parts[-1].target[-1:]])
    assert torch.equal(torch.cat([w.target for w in parts]), rows[1:])
    for column, whole in zip(rows.t(), columns(size, N).t(), strict=True):
        first = int((whole == column[0]).nonzero())
        assert torch.equal(column, whole.roll(-first))
    done = draw.draw(st.integers(0, len(parts)))
    rest = Windows(ids, N, length, **options, partial_shuffle=True).epoch(
        epoch, parts[done - 1].stop if done else 0
    )
    for a, b in zip(rest, parts[done:], strict=True):
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.target, b.target)


def test_partial_shuffles_are_uniform_and_differ() -> None:
    """By epoch, column and seed; a column of one row more than a window starts anywhere."""
    ids = np.arange(4 * 500, dtype=np.int32)

    def first(epoch: int, seed: int = 1) -> torch.Tensor:
        windows = Windows(ids, 500, 3, partial_shuffle=True, seed=seed)
        return next(windows.epoch(epoch)).x[0] % 4

    assert first(0).bincount(minlength=4).tolist() == pytest.approx([125] * 4, abs=50)
    assert not torch.equal(first(0), first(1))
    assert not torch.equal(first(0), first(0, seed=2))
    assert torch.equal(first(1), first(1))
    (one,) = Windows(np.arange(2), 1, 35, partial_shuffle=True).epoch(0)
    assert sorted([*one.x.flatten().tolist(), *one.target.flatten().tolist()]) == [0, 1]


def lengths(epoch: int, seed: int = 1111, rows: int = 200_000) -> np.ndarray:
    windows = Windows(np.zeros(rows, np.int32), 1, 70, variable=True, seed=seed)
    return np.array([w.stop - w.start for w in windows.epoch(epoch)][:-1])


def test_variable_lengths_follow_the_awd_rule() -> None:
    """max(5, int(N(70, 5))), with probability 0.05 around 35. The numbers never change."""
    drawn = lengths(0)
    half = drawn < 52  # 3.5 standard deviations from either
    assert half.mean() == pytest.approx(0.05, abs=0.02)
    assert drawn[~half].mean() == pytest.approx(69.5, abs=0.5)  # int() takes half a row off
    assert drawn[~half].std() == pytest.approx(5, abs=0.5)
    assert drawn[half].mean() == pytest.approx(34.5, abs=2)
    assert drawn[:8].tolist() == [72, 64, 69, 65, 41, 62, 71, 71]


def test_variable_lengths_depend_on_seed_and_epoch() -> None:
    rows = {tuple(lengths(e, s, 2_000)[:20]) for e in (0, 1, 2) for s in (1, 2, 1 + 2**32)}
    assert len(rows) == 9


def test_windows_are_copies(tmp_path: object) -> None:
    ids = np.arange(20, dtype=np.int32)
    ids.flags.writeable = False
    window = next(Windows(ids, 2, 3).epoch(0))
    window.x.zero_()
    assert ids.tolist() == list(range(20))


@pytest.mark.parametrize(
    ("size", "N", "message"),
    [
        (0, 1, "0 tokens are too few for 1 columns, which need 2 or more"),
        (159, 80, "159 tokens are too few for 80 columns, which need 160 or more"),
        (10, 0, "batch_size must be a whole number, 1 or more, got 0"),
        (10, 2.0, "batch_size must be a whole number, 1 or more, got 2.0"),
        (10, True, "batch_size must be a whole number, 1 or more, got True"),
    ],
)
def test_bad_sizes(size: int, N: int, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        Windows(np.zeros(size, np.int32), N, 3)


def test_just_long_enough() -> None:
    windows = Windows(np.zeros(160, np.int32), 80, 35)
    assert (windows.rows, windows.tokens, len(windows)) == (1, 80, 1)


def test_bad_use() -> None:
    ids = np.zeros(100, np.int32)
    with pytest.raises(InvalidValue, match="length must be"):
        Windows(ids, 2, 0)
    with pytest.raises(InvalidValue, match="seed must be"):
        Windows(ids, 2, 3, seed=-1)
    with pytest.raises(InvalidType, match="float64 of shape"):
        Windows(np.zeros(100), 2, 3)
    with pytest.raises(InvalidType, match=r"shape \(10, 10\)"):
        Windows(ids.reshape(10, 10), 2, 3)
    with pytest.raises(NoisinError, match="the number of windows depends on the epoch"):
        len(Windows(ids, 2, 3, variable=True))
    for start in (1, -3, 100):
        with pytest.raises(InvalidValue, match=f"no window of epoch 0 starts at row {start}"):
            Windows(ids, 2, 3).epoch(0, start)
    with pytest.raises(InvalidValue, match="epoch must be"):
        Windows(ids, 2, 3).epoch(-1)
