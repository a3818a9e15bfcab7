"""A run that starts from the best weights of another: exactly those, recorded, and left alone."""

from __future__ import annotations

import hashlib
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from noisin.errors import InvalidValue
from noisin.training import RunRecord, restore
from noisin.training.state import TrainState
from tests.training import toy


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("base") / "run"
    toy.fit(out, train={"epochs": 2})
    return out


def tuning(base: Path, **train: Any) -> dict[str, Any]:
    """Fine-tuning as AWD-LSTM does it: averaged from the first step, with a constant rate."""
    plain = {"start": str(base), "averaging": "from_start", "lr_decay": 1.0, "nt_patience": 2}
    return {"train": {**plain, "epochs": 3, "save_steps": 4, **train}}


def content(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """The weights of the newest run before its first step."""
    found: dict[str, torch.Tensor] = {}
    advance = TrainState.next_sums

    def noted(self: TrainState) -> None:
        if not self.step and not self.epoch:
            found.update({name: w.detach().clone() for name, w in self.weights().items()})
        advance(self)

    monkeypatch.setattr(TrainState, "next_sums", noted)
    return found


def test_it_starts_from_exactly_those_weights(
    base: Path, tmp_path: Path, first: dict[str, torch.Tensor]
) -> None:
    before, other = content(base), toy.fit(tmp_path / "run", **tuning(base), seed=7)
    assert content(base) == before
    best = restore(RunRecord(base))
    expected = dict(best.model.named_parameters())
    assert first.keys() == expected.keys()
    assert all(torch.equal(first[name], expected[name]) for name in expected)
    facts = other.environment["start"]
    file = {"raw": "weights", "averaged": "average"}[best.weights]
    known = toy.manifest(base, (RunRecord(base).summary or {})["best"]["checkpoint"])["files"]
    assert facts["sha256"] == known[f"{file}.safetensors"]
    assert (facts["weights"], facts["epoch"]) == (best.weights, best.epoch)
    assert other.identity["start"] == facts["sha256"]
    assert restore(other).epoch <= 3
    assert [line["valid_averaged"] is not None for line in other.metrics] == [True] * 3
    assert other.metrics[0]["valid_averaged"]["nats"] < RunRecord(base).metrics[0]["valid"]["nats"]


def test_the_statistics_of_a_normalisation_are_weights_too(
    tmp_path: Path, first: dict[str, torch.Tensor]
) -> None:
    settings = {"model": {"cell": "batch-norm-lstm"}}
    toy.fit(tmp_path / "base", **settings, train={"epochs": 1})
    fresh = dict(first)
    toy.fit(tmp_path / "run", **settings, **tuning(tmp_path / "base", epochs=1))
    statistics = dict(restore(RunRecord(tmp_path / "base")).model.named_buffers())
    assert statistics
    for name, buffer in statistics.items():
        assert torch.equal(first[name], buffer)
        assert not torch.equal(first[name], fresh[name])


@pytest.mark.parametrize("event", [8, 60])  # before the first checkpoint, and after it
def test_a_run_that_was_killed_goes_on_in_the_same_bits(
    event: int, base: Path, tmp_path: Path
) -> None:
    settings = toy.config(**tuning(base))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert toy.run(whole, settings=settings).code == 0
    kill = toy.signal_at(killed, event, signal.SIGKILL)
    assert toy.run(killed, settings=settings, before=kill).code == -signal.SIGKILL
    assert toy.run(killed, settings=settings) == toy.Outcome(0, "", [])
    assert toy.result(killed) == toy.result(whole)


def test_the_other_run_is_needed_only_at_the_start(base: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(base, copy)
    settings = tuning(copy)
    toy.fit(tmp_path / "run", **tuning(copy, epochs=1))
    shutil.rmtree(copy)
    assert len(toy.fit(tmp_path / "run", **settings).metrics) == 3
    with pytest.raises(InvalidValue, match=r"train\.start = .*copy' is not a run"):
        toy.fit(tmp_path / "new", **settings)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("changes", "text", "message"),
    [
        ({"model": {"hidden_size": 7}}, None, r"fit the model: .* is \(.*6.*\) there and \(.*7"),
        ({}, toy.corpus(words=9), "that run has another vocabulary"),
    ],
    ids=["shapes", "vocabulary"],
)
def test_weights_that_do_not_fit_are_refused(
    changes: Any, text: Any, message: str, base: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidValue, match=message):
        toy.fit(tmp_path / "run", text=text, **{**tuning(base), **changes})
    assert not (tmp_path / "run").exists()


def test_other_weights_at_the_start_are_another_run(base: Path, tmp_path: Path) -> None:
    copy, out = tmp_path / "copy", tmp_path / "run"
    shutil.copytree(base, copy)
    toy.fit(out, **tuning(copy, epochs=1))
    shutil.rmtree(out / "checkpoints")
    (out / "checkpoints").mkdir()
    (out / "summary.json").unlink()
    shutil.rmtree(copy)
    toy.fit(copy, train={"epochs": 2}, seed=5)
    with pytest.raises(InvalidValue, match="a run that started from other weights"):
        toy.fit(out, **tuning(copy, epochs=1))


def test_it_stops_by_the_non_monotone_rule(base: Path, tmp_path: Path) -> None:
    """With a rate so large that every epoch is worse, after the window and two more."""
    record = toy.fit(tmp_path, **tuning(base, lr=50.0, clip=5.0, nt_patience=1, epochs=9))
    assert record.summary is not None
    assert record.summary["ended"] == "patience"
    scores = [line["valid_averaged"]["nats"] for line in record.metrics]
    assert scores[-1] > min(scores[:-2])
