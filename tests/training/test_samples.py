"""Training on K noise samples that share one pass of the recurrence, and on copies of the rows."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from noisin.models import Words
from noisin.training import samples
from tests.training import toy

N = toy.TOY["train"]["batch_size"]
STRONG: dict[str, Any] = {
    "noise": {"feedback": False, "noisy_layers": "last"},
    "model": {"dropout": {"output": 0.2}},
    "train": {"K": 3, "save_steps": 4},
}


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that the embedding gets while it trains."""
    seen: list[int] = []
    forward = Words.forward

    def noted(self: Words, x: Tensor) -> Tensor:
        if self.training:
            seen.append(x.shape[1])
        return forward(self, x)

    monkeypatch.setattr(Words, "forward", noted)
    return seen


def test_a_run_in_strong_mode_shares_the_recurrence(
    tmp_path: Path, rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first step to the last, and its curve is that of copies, up to rounding."""
    shared = toy.fit(tmp_path / "shared", **STRONG)
    assert set(rows) == {N}
    rows.clear()
    monkeypatch.setattr(samples, "offered", lambda model: False)
    copied = toy.fit(tmp_path / "copied", **STRONG)
    assert set(rows) == {3 * N}
    for a, b in zip(shared.metrics, copied.metrics, strict=True):
        for split in ("train", "valid"):
            assert a[split]["nats"] == pytest.approx(b[split]["nats"], rel=1e-3)


def test_a_run_in_weak_mode_does_not(tmp_path: Path, rows: list[int]) -> None:
    toy.fit(tmp_path, train={"K": 3, "epochs": 1}, model={"dropout": {}})
    assert set(rows) == {3 * N}


def test_a_run_that_was_stopped_goes_on_sharing(tmp_path: Path) -> None:
    """The state that was saved has the rows of all samples, and they are found to be copies."""
    settings = toy.config(**STRONG)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert toy.run(whole, settings=settings).code == 0
    interrupt = toy.signal_at(stopped, 60, signal.SIGTERM)
    assert toy.run(stopped, settings=settings, before=interrupt).code != 0
    assert toy.run(stopped, settings=settings).code == 0
    assert toy.result(stopped) == toy.result(whole)
