"""The device of a run: what ``auto`` chooses, what is recorded, and what a continued run keeps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from noisin.errors import InvalidValue
from noisin.training import RunConfig
from noisin.training.runtime import device
from tests.training import toy


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"),
    [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto(cuda: bool, mps: bool, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert device.chosen_device("auto") == expected
    assert device.chosen_device("cpu") == "cpu"


def test_what_was_chosen_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    record = toy.fit(tmp_path / "auto", device="auto", train={"epochs": 1})
    assert record.config.device == "auto"
    assert record.environment["device"] == "cpu"
    plain = toy.fit(tmp_path / "cpu", train={"epochs": 1})
    assert record.metrics[0]["valid"] == plain.metrics[0]["valid"]


@pytest.mark.parametrize("name", ["cuda", "mps", "nonsense"])
def test_a_continued_run_keeps_its_device(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine without it, one message says so."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    record = toy.fit(tmp_path / "run", device="auto", train={"epochs": 1})
    record.write("environment.json", record.environment | {"device": name})
    with pytest.raises(InvalidValue, match=f"'{name}', but .* began on it: continue it there"):
        toy.fit(tmp_path / "run", device="auto", train={"epochs": 2})


def test_it_is_part_of_the_identity_and_the_default_is_not_new() -> None:
    assert RunConfig(device="auto").hash() != RunConfig().hash()
    assert RunConfig().device == "cpu"
