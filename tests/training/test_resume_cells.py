"""Runs of cells with masks, statistics or options of their own, killed and continued."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from noisin.regularizers import BatchNormLSTMCell
from noisin.training import RunRecord, restore
from tests.training import toy

DROPOUT = {"input": 0.1, "recurrent": 0.3, "output": 0.1, "locked": True}
MODELS: dict[str, dict[str, Any]] = {
    "highway": {"cell": "highway", "cell_arguments": {"depth": 2}, "dropout": DROPOUT},
    "batch-norm-lstm": {"cell": "batch-norm-lstm", "cell_arguments": {"t_max": 4}},
    "locked gates": {"gate_dropout": {"x": 0.3, "h": 0.2, "locked": True, "site": "before"}},
    "updates": {"update_dropout": {"p": 0.3}, "dropout": DROPOUT},
}


CASES = [
    *((name, {"lr": 2.0}) for name in MODELS),
    ("batch-norm-lstm", {"optimizer": "adam", "lr": 0.01}),
    ("batch-norm-lstm", {"optimizer": "adamw", "lr": 0.01}),
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "optimizer"), CASES)
def test_a_killed_run_ends_in_the_same_bits(
    name: str, optimizer: dict[str, Any], tmp_path: Path
) -> None:
    train = {"epochs": 2, "save_steps": 3, "averaging": "from_start", **optimizer}
    settings = toy.config(model=MODELS[name], train=train)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert toy.run(whole, settings=settings) == toy.Outcome(0, "", [])
    outcome = toy.run(killed, settings=settings, before=toy.signal_at(killed, 90, signal.SIGKILL))
    assert outcome.code == -signal.SIGKILL
    assert toy.numbers(killed), "there is something to continue from"
    assert toy.run(killed, settings=settings) == toy.Outcome(0, "", [])
    assert toy.result(killed) == toy.result(whole)
    if name == "batch-norm-lstm":
        _has_statistics(whole)


def _has_statistics(out: Path) -> None:
    model = restore(RunRecord(out), "last", "raw").model
    cells = [module for module in model.modules() if isinstance(module, BatchNormLSTMCell)]
    assert len(cells) == 2
    assert all(cell.mean_x.any() and not torch.equal(*cell.mean_x[:2]) for cell in cells)
