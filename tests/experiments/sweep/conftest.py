"""A corpus that all tests here share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.sweep import toy


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISIN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("NOISIN_KERNEL", "eager")  # nothing to compile, here and in other processes


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.write_text(tmp_path_factory.mktemp("text") / "cats")
