"""The generator of all-pairs tables, against the definition."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pairwise import Row, all_pairs, product

ROOT = Path(__file__).parents[1]
axes_of_any_size = st.lists(st.integers(1, 5), min_size=2, max_size=5)


def pairs_in(rows: list[Row]) -> set[tuple[int, object, int, object]]:
    return {
        (i, row[i], j, row[j])
        for row in rows
        for i, j in itertools.combinations(range(len(row)), 2)
    }


@given(sizes=axes_of_any_size)
@settings(max_examples=50, deadline=None, derandomize=True)
def test_every_pair_of_values_occurs(sizes: list[int]) -> None:
    axes = [range(size) for size in sizes]
    rows = all_pairs(*axes)
    assert pairs_in(rows) == pairs_in(product(*axes))
    assert len(set(rows)) == len(rows)
    assert set(rows) <= set(product(*axes))


@given(sizes=axes_of_any_size, modulus=st.integers(2, 4))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_rows_that_cannot_be_are_left_out_with_only_their_pairs(
    sizes: list[int], modulus: int
) -> None:
    axes = [range(size) for size in sizes]

    def where(*row: int) -> bool:
        return sum(row) % modulus != 0

    rows = all_pairs(*axes, where=where)
    assert all(where(*row) for row in rows)
    assert pairs_in(rows) == pairs_in(product(*axes, where=where))


@pytest.mark.parametrize(
    ("sizes", "most"), [((2, 2, 2, 2), 6), ((3, 3, 3, 3), 13), ((7, 2, 2, 2, 2, 5), 40)]
)
def test_the_table_is_small(sizes: tuple[int, ...], most: int) -> None:
    assert len(all_pairs(*(range(size) for size in sizes))) <= most


def test_one_axis_is_taken_whole() -> None:
    assert all_pairs("abc") == [("a",), ("b",), ("c",)]


def test_values_need_neither_hash_nor_order() -> None:
    assert len(all_pairs([{}, []], [None, {1}])) == 4


@pytest.mark.parametrize("products", ["", "all"])
def test_the_table_is_the_same_in_every_process(products: str) -> None:
    """Workers of pytest-xdist must collect the same tests, whatever the seed of their hashes."""
    code = "from tests.pairwise import table; print(*table('abcd', 'efg', 'hij', 'kl'), sep='\\n')"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"NOISIN_PRODUCTS": products, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    (names,) = printed
    rows = product if products else all_pairs
    assert len(names.splitlines()) == len(rows("abcd", "efg", "hij", "kl"))
