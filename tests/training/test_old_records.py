"""A run that noisin 0.1.0 made, ``records/0.1.0``, is read, evaluated and continued."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from noisin.data import Windows
from noisin.experiments.collection import collect
from noisin.noise.variates import Variates
from noisin.training import RunRecord, restore
from noisin.training.predictors import Clean, evaluate
from tests.training import toy

OLD = Path(__file__).parent / "records" / "0.1.0"


def test_it_is_read() -> None:
    record = RunRecord(OLD)
    assert record.environment["versions"]["noisin"] == "0.1.0"
    assert [line["epoch"] for line in record.metrics] == [1, 2]
    (run,) = collect(OLD.parent)
    assert run.complete
    assert run.best is not None
    measured = [line[name] for line in record.metrics for name in ("valid", "valid_averaged")]
    assert run.best["best_valid"] == min(measured)
    raw = run.at_best("raw")
    assert raw is not None
    assert raw["test"] == record.summary["best"]["test"], "0.1.0 scored the raw weights alone"


def test_it_is_evaluated() -> None:
    """The restored weights score what was recorded, up to the rounding of another processor."""
    record = RunRecord(OLD)
    restored = restore(record, "last", "raw")
    score = evaluate(Clean(restored.model), Windows(toy.corpus().valid, 10, 70).epoch(0))
    assert math.exp(score.nats) == pytest.approx(record.metrics[-1]["valid"], rel=1e-5)


def test_it_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs of 0.1.0 and two of today are four, up to the rounding of another processor."""
    with monkeypatch.context() as as_in_0_1_0:  # which drew its masks from other random bits
        as_in_0_1_0.setattr(Variates, "indicator", lambda self, p: self.uniform().le_(p))
        toy.fit(tmp_path / "whole", train={"epochs": 2})
    whole = toy.fit(tmp_path / "whole", train={"epochs": 4})
    continued = toy.fit(shutil.copytree(OLD, tmp_path / "run"), train={"epochs": 4})
    assert isinstance(continued.metrics[0]["valid"], float)
    for old, new in zip(continued.metrics[2:], whole.metrics[2:], strict=True):
        assert old["valid"]["nats"] == pytest.approx(new["valid"]["nats"], rel=1e-4)
        assert (old["lr"], old["step"]) == (new["lr"], new["step"])
    assert continued.environment["resumed"][0]["step"] == 20
    (run,) = collect(tmp_path / "run")
    averaged = [toy.perplexity(line["valid_averaged"]) for line in whole.metrics]
    assert run.valid == pytest.approx(averaged, rel=1e-4)
