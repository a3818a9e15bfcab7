"""All-pairs tables: fewer cases than a product, and still every pair of settings together.

Most bugs that depend on settings at all depend on one or two of them. A table of all pairs finds
these with tens of cases where the product has hundreds. ``NOISIN_PRODUCTS=all`` makes every table
the whole product, as ``make stress`` does.
"""

from __future__ import annotations

import functools
import itertools
import operator
import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest

PRODUCTS = os.environ.get("NOISIN_PRODUCTS") == "all"

# For a fact that takes long to show and that other tests come close to.
stress_only = pytest.mark.skipif(not PRODUCTS, reason="takes long: make stress runs it")

Row = tuple[Any, ...]


def pairs_of(indices: Sequence[int], sizes: Sequence[int]) -> int:
    """The pairs of values that a row contains, as bits: sets would take seconds at each collection.

    The values of all axes are numbered one after another, so that a pair is two of these numbers.
    """
    starts = itertools.accumulate(sizes, initial=0)
    numbers = [start + index for start, index in zip(starts, indices, strict=False)]
    pairs = itertools.combinations(numbers, 2)
    return functools.reduce(operator.or_, (1 << i * sum(sizes) + j for i, j in pairs))


def always(*row: Any) -> bool:
    """Whether a row is possible: each one is."""
    return True


def product(*axes: Sequence[Any], where: Callable[..., bool] = always) -> list[Row]:
    """Every combination of one value per axis for which ``where(*row)`` is true."""
    return [row for row in itertools.product(*axes) if where(*row)]


def all_pairs(*axes: Sequence[Any], where: Callable[..., bool] = always) -> list[Row]:
    """A few rows of :func:`product` that contain every pair of values that any of its rows does.

    Greedy and deterministic: the next row is the first of those with the most new pairs.
    """
    if len(axes) < 2:
        return product(*axes, where=where)
    sizes = [len(axis) for axis in axes]
    candidates = [
        (row, pairs_of(indices, sizes))
        for row, indices in zip(
            itertools.product(*axes),
            itertools.product(*map(range, sizes)),
            strict=True,
        )
        if where(*row)
    ]
    missing = functools.reduce(operator.or_, (pairs for _, pairs in candidates), 0)
    rows = []
    while missing:
        row, pairs = max(candidates, key=lambda candidate: (candidate[1] & missing).bit_count())
        rows.append(row)
        missing &= ~pairs
    return rows


def table(*axes: Sequence[Any], where: Callable[..., bool] = always) -> list[Row]:
    """The rows to test: all pairs, or the product where ``NOISIN_PRODUCTS=all``."""
    return (product if PRODUCTS else all_pairs)(*axes, where=where)
