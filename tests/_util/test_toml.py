"""Settings written as TOML are read back by Python's own parser."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisin._util import toml

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
SETTINGS = st.recursive(
    st.dictionaries(TEXT, VALUES, max_size=4),
    lambda inner: st.dictionaries(TEXT, VALUES | inner, max_size=4),
    max_leaves=6,
)


LISTED = st.recursive(
    SETTINGS,
    lambda inner: st.dictionaries(TEXT, st.lists(inner, max_size=3), max_size=3),
    max_leaves=4,
)


@given(SETTINGS | LISTED)
def test_it_is_read_back(settings: dict[str, Any]) -> None:
    assert tomllib.loads(toml.dumps(settings)) == settings


def test_what_is_none_is_left_out() -> None:
    settings = {"a": None, "b": {"c": None, "d": 1}, "e": [{"f": 2, "g.h": "x"}]}
    assert tomllib.loads(toml.dumps(settings)) == {"b": {"d": 1}, "e": [{"f": 2, "g.h": "x"}]}
    with pytest.raises(TypeError, match="TOML has no object"):
        toml.dumps({"a": object()})
