from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisin.data import describe, facts, load, overlap
from noisin.errors import InvalidValue
from tests.data.conftest import write_folder

IDS = st.lists(st.integers(0, 2), max_size=40)


@settings(deadline=None, derandomize=True)
@given(IDS, IDS, st.integers(1, 5), st.integers(1, 50))
def test_overlap_counts_n_grams(train: list[int], other: list[int], n: int, chunk: int) -> None:
    """Against sets of tuples, with train in chunks of any size."""

    def grams(ids: list[int]) -> list[tuple[int, ...]]:
        return [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]

    seen = set(grams(train))
    found = [gram in seen for gram in grams(other)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "_CHUNK", chunk)
        share = overlap(np.array(train, np.int32), np.array(other, np.int32), n)
    assert share == pytest.approx(np.mean(found) if found else 0.0, abs=1e-12)


def test_order_and_zeros_count() -> None:
    ids = np.array([0, 0, 1, 2], np.int32)
    assert overlap(ids, ids[::-1], 2) == pytest.approx(1 / 3)  # (0, 0) alone
    assert overlap(ids, np.array([2, 1], np.int32), 2) == 0
    with pytest.raises(InvalidValue, match="1 or more, got 0"):
        overlap(ids, ids, 0)


def test_facts(tmp_path: Path) -> None:
    write_folder(tmp_path, train="a <unk> b <unk>\n", valid="<unk>\n", test="b b b\n")
    corpus = load(tmp_path)
    told = describe(corpus)
    assert told.tokens == {"train": 5, "valid": 2, "test": 4}
    assert told.unknown == {"train": 0.4, "valid": 0.5, "test": 0.0}
    assert told.words == len(corpus.vocab) == 4
    assert told.overlap == {"valid": 0.0, "test": 0.0}
    assert (told.sha256, told.vocabulary_sha256) == (corpus.sha256, corpus.vocab.sha256)


def test_without_unknown_words(folder: Path) -> None:
    assert set(describe(load(folder)).unknown.values()) == {0.0}
