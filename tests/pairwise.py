"""All-pairs tables: fewer cases than a product, and still every pair of settings together.

Most bugs that depend on settings at all depend on one or two of them. A table of all pairs finds
these with tens of cases where the product has hundreds. ``NOISIN_PRODUCTS=all`` makes every table
the whole product, as ``make stress`` does.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest

PRODUCTS = os.environ.get("NOISIN_PRODUCTS") == "all"

# For a fact that takes long to show and that other tests come close to.
stress_only = pytest.mark.skipif(not PRODUCTS, reason="takes long: make stress runs it")

Row = tuple[Any, ...]
Pair = tuple[tuple[int, int], tuple[int, int]]  # (axis, index of its value), twice


def pairs_of(indices: Sequence[int]) -> set[Pair]:
    """The pairs of values that a row contains."""
    return set(itertools.combinations(enumerate(indices), 2))


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
    candidates = [
        (row, pairs_of(indices))
        for row, indices in zip(
            itertools.product(*axes),
            itertools.product(*(range(len(axis)) for axis in axes)),
            strict=True,
        )
        if where(*row)
    ]
    missing: set[Pair] = set().union(*(pairs for _, pairs in candidates))
    rows = []
    while missing:
        row, pairs = max(candidates, key=lambda candidate: len(candidate[1] & missing))
        rows.append(row)
        missing -= pairs
    return rows


def table(*axes: Sequence[Any], where: Callable[..., bool] = always) -> list[Row]:
    """The rows to test: all pairs, or the product where ``NOISIN_PRODUCTS=all``."""
    return (product if PRODUCTS else all_pairs)(*axes, where=where)
