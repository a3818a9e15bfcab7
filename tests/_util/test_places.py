"""One rule for the place of the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from noisin._util import places, trust
from noisin.data import cache


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISIN_CACHE", "/here")
    assert places.cache() == Path("/here")
    monkeypatch.delenv("NOISIN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/there")
    assert places.cache() == Path("/there/noisin")
    monkeypatch.setenv("HOME", "/home/me")
    for ignored in ("", "not/absolute"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert places.cache() == Path("/home/me/.cache/noisin")


def test_ids_and_kernels_are_kept_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISIN_CACHE", str(tmp_path))
    assert cache.entry_path("abc").is_relative_to(tmp_path)
    assert trust.cache_folder("kernels").is_relative_to(tmp_path)
