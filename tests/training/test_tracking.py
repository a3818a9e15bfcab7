"""Trackers of experiments: what they are told, that they cannot harm a run, and two real ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from noisin.training import RunConfig, TrainConfig
from noisin.training.runtime import trackers, tracking
from noisin.training.runtime.progress import RunOutline
from tests.training import toy

REAL = bool(os.environ.get("NOISIN_TRACKERS"))


class Recorder:
    """Implements the protocol and remembers."""

    calls: ClassVar[list[tuple[Any, ...]]] = []

    def begin(self, outline: RunOutline) -> None:
        self.calls.append(("begin", outline))

    def epoch(self, number: int, values: Mapping[str, float]) -> None:
        self.calls.append(("epoch", number, dict(values)))

    def end(self) -> None:
        self.calls.append(("end",))


class Failing(Recorder):
    """Fails at the second epoch, as a service may."""

    def epoch(self, number: int, values: Mapping[str, float]) -> None:
        if number == 2:
            raise ConnectionError("the server is down")
        super().epoch(number, values)


@pytest.fixture
def calls() -> list[tuple[Any, ...]]:
    Recorder.calls.clear()
    return Recorder.calls


def tracked(tracker: str, **train: Any) -> dict[str, Any]:
    return {"train": {"epochs": 3, "tracker": f"{__name__}:{tracker}", **train}}


def test_what_a_tracker_is_told(tmp_path: Path, calls: list[tuple[Any, ...]]) -> None:
    record = toy.fit(tmp_path / "run", **tracked("Recorder"))
    (_, outline), *epochs, end = calls
    assert end == ("end",)
    assert (outline.folder, outline.done, outline.device) == (tmp_path / "run", 0, "cpu")
    assert outline.parameters == record.summary["parameters"]
    assert outline.threads == record.threads
    assert outline.config.hash() == record.config.hash()
    assert [number for _, number, _ in epochs] == [1, 2, 3]
    for (_, _, values), line in zip(epochs, record.metrics, strict=True):
        assert values["valid"] == toy.perplexity(line["valid"])
        assert values["lr"] == line["lr"]
        assert "valid_averaged" in values


def test_a_run_that_continues(tmp_path: Path, calls: list[tuple[Any, ...]]) -> None:
    toy.fit(tmp_path / "run", **tracked("Recorder", epochs=1))
    toy.fit(tmp_path / "run", **tracked("Recorder", epochs=2))
    assert [call[1].done for call in calls if call[0] == "begin"] == [0, 1]
    assert [call[1] for call in calls if call[0] == "epoch"] == [1, 2]


def test_a_tracker_that_fails_does_not_harm_the_run(
    tmp_path: Path, calls: list[tuple[Any, ...]]
) -> None:
    seen = toy.Seen()
    record = toy.fit(tmp_path / "run", seen, **tracked("Failing"))
    assert record.summary is not None
    assert [call[0] for call in calls] == ["begin", "epoch"], "and is left alone"
    (note,) = seen.notes
    assert note.startswith("Failing failed and gets no more metrics")
    assert note.endswith("the server is down")
    assert (len(seen.epochs), seen.ended) == (3, 1)


def test_it_is_no_part_of_the_identity() -> None:
    plain = RunConfig()
    settings = RunConfig.parse({"train": {"tracker": "wandb", "tensorboard": True}})
    assert settings.hash() == plain.hash()
    assert "tracker" not in plain.to_json()
    assert settings.train.trackers == ["tensorboard", "wandb"]
    assert TrainConfig(tensorboard=True, tracker="tensorboard").trackers == ["tensorboard"]


def test_every_name_has_a_class() -> None:
    for name, kind in tracking.TRACKERS.items():
        found = getattr(trackers, kind)()
        assert all(hasattr(found, member) for member in ("begin", "epoch", "end")), name


@pytest.mark.skipif(not REAL, reason="make stress installs mlflow and runs it")
def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    settings: dict[str, Any] = {"train": {"tracker": "mlflow", "epochs": 1}}
    toy.fit(tmp_path / "run", **settings)
    settings["train"]["epochs"] = 2
    record = toy.fit(tmp_path / "run", **settings)
    client = MlflowClient()
    experiment = client.get_experiment_by_name(trackers.PROJECT)
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "run")
    assert run.data.params["train.lr"] == str(record.config.train.lr)
    logged = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "valid")]
    assert logged == [(line["epoch"], toy.perplexity(line["valid"])) for line in record.metrics]


@pytest.mark.skipif(not REAL, reason="make stress installs wandb and runs it offline")
def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    seen = toy.Seen()
    toy.fit(tmp_path / "run", seen, train={"tracker": "wandb", "epochs": 1})
    assert seen.notes == []
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*"))


@pytest.mark.skipif(not REAL, reason="make stress runs it where aim can be installed")
def test_aim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aim = pytest.importorskip("aim")
    monkeypatch.chdir(tmp_path)
    seen = toy.Seen()
    for epochs in (1, 2):
        toy.fit(tmp_path / "run", seen, train={"tracker": "aim", "epochs": epochs})
    assert seen.notes == []
    assert len(aim.Repo(str(tmp_path)).list_all_runs()) == 1
