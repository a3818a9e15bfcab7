"""The cache of these tests is a folder of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISIN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small corpus."""
    write_folder(tmp_path / "small")
    return tmp_path / "small"


@pytest.fixture
def data() -> Path:
    """The folder of the public data sets."""
    place = os.environ.get("NOISIN_DATA")
    if not place:
        pytest.skip("needs the data sets: set NOISIN_DATA to their folder")
    return Path(place)


def write_folder(folder: Path, **texts: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"train": "a b c\nb c\n", "valid": "a d\n", "test": "a\n\nb\n"} | texts
    for split, text in parts.items():
        (folder / f"{split}.txt").write_text(text)
