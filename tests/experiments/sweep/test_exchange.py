"""What is published at a URL stays: no copy of a worker that was overtaken takes its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from noisin import training
from noisin.experiments.sweep import Sweep
from noisin.experiments.sweep.definition import SweepPoint
from noisin.experiments.sweep.exchange import fetch_records, publish_rest
from noisin.experiments.sweep.leases import Lease
from noisin.experiments.sweep.mirror import Mirror
from noisin.experiments.sweep.outcome import Outcome
from noisin.experiments.sweep.standing import Standing
from noisin.experiments.sweep.worker import Job, Worker
from noisin.training.config import RunConfig
from noisin.training.record import RunRecord
from noisin.training.resume import refuse_without_checkpoints
from noisin.training.runtime.signals import Flag
from tests.experiments.records import ENVIRONMENT, line

SETTINGS = {"train": {"averaging": "none", "epochs": 3}, "threads": 1}
SWEEP = Sweep(name="toy", points=[SweepPoint(name="p", settings=SETTINGS)])
(RUN,) = SWEEP.tasks[0].runs
NAME = f"{RUN.name}-{RUN.digest[:12]}"


@pytest.fixture
def url() -> Iterator[str]:
    yield "memory://bucket/runs"
    fsspec.filesystem("memory").rm("/", recursive=True)


def write(folder: Path, epochs: int, end: str = "") -> Path:
    """The files of a run after so many epochs, which has ended in this way."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [line(epoch, 90.0 - epoch) for epoch in range(1, epochs + 1)]
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    (folder / "config.json").write_text(RUN.config.to_json())
    (folder / "metrics.jsonl").write_text("".join(json.dumps(found) + "\n" for found in lines))
    (folder / "checkpoints" / f"{epochs:06d}").mkdir(parents=True, exist_ok=True)
    (folder / "checkpoints" / f"{epochs:06d}" / "weights").write_text("x" * epochs)
    best = lines[-1] | {"weights": "raw", "test": 60.0, "checkpoint": epochs}
    digest = RUN.config.hash()
    ends: dict[str, Any] = {
        "summary": {"epochs": epochs, "seconds": 61.0, "config": digest, "best": best},
        "pruned": {"epochs": epochs, "config": digest, "message": "others were better"},
    }
    if end:
        (folder / f"{end}.json").write_text(json.dumps(ends[end]))
    return folder


def worker(machine: Path, url: str) -> Worker:
    out, storage = machine / "out", f"sqlite:///{machine.parent / 'study.db'}"
    (out / "toy").mkdir(parents=True)
    job = Job(sweep=SWEEP, out=out, storage=storage, session=machine.name, threads=1, url=url)
    found = Worker(job, Flag(), lambda _: None)
    found.ledger.recover()
    return found


def standing(state: Any) -> list[Standing]:
    return [Standing(SWEEP.tasks[0], (Outcome(state),))]


def epochs_at(url: str) -> int:
    """The number of epochs of the record at the URL, which is complete."""
    mirror = Mirror(url, "toy")
    assert "summary.json" in mirror.published()[NAME]
    return len(mirror.files.cat_file(str(mirror.root / NAME / "metrics.jsonl")).splitlines())


def test_a_worker_that_was_overtaken_copies_nothing(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was suspended while it saved a checkpoint; another has published the run meanwhile."""
    a, b = worker(tmp_path / "a", url), worker(tmp_path / "b", url)
    leases: list[Lease] = []
    copies: list[int] = []

    def complete(_: RunConfig, folder: Path, **__: Any) -> None:
        write(folder, 3, "summary")

    def suspended(_: RunConfig, folder: Path, progress: Any) -> None:
        write(folder, 1)
        (row,) = a.ledger.leases.rows()
        a.ledger.leases.expire(row)
        monkeypatch.setattr(training, "run", complete)
        assert b._take()
        leases[0]._renewed -= 100
        progress.look()

    take = a.ledger.take

    def taken() -> Lease | None:
        found = take()
        leases.extend([found] if found else [])
        return found

    monkeypatch.setattr(a.ledger, "take", taken)
    monkeypatch.setattr(training, "run", suspended)
    assert a.mirror is not None
    monkeypatch.setattr(a.mirror, "save", lambda *_: copies.append(1))
    assert a._take()
    assert copies == []
    assert Mirror(url, "toy").unpublished() == []
    publish_rest(Mirror(url, "toy"), a.ledger.survey(), a.job.out / "toy")
    assert epochs_at(url) == 3


def test_a_complete_record_is_never_replaced(tmp_path: Path, url: str) -> None:
    """Neither by a copy of an overtaken worker, nor by its folder."""
    stale, home = write(tmp_path / "a" / NAME, 1), tmp_path / "home"
    mirror = Mirror(url, "toy")
    late = Mirror(url, "toy")
    late.save(stale, fence=1)
    copied = {name: late.files.cat_file(name) for name in late.files.find("/bucket")}
    mirror.publish(write(tmp_path / "b" / NAME, 3, "summary"))
    late.save(write(stale, 2), fence=1)
    assert mirror.unpublished() == [], "nothing is copied once the record is complete"
    late.files.pipe(copied)  # as if it were
    assert mirror.unpublished() == [NAME]
    publish_rest(mirror, standing("complete"), write(home / NAME, 3, "summary").parent)
    assert (epochs_at(url), mirror.unpublished()) == (3, [])
    assert (home / NAME / "summary.json").exists(), "the record of this machine is left alone"
    mirror.publish(stale)
    assert epochs_at(url) == 3


def test_only_a_copy_that_ended_as_the_database_says_is_published(tmp_path: Path, url: str) -> None:
    """The worker died before it could publish; an overtaken one has copied after it."""
    mirror, home = Mirror(url, "toy"), tmp_path / "home"
    mirror.save(write(tmp_path / "a" / NAME, 1), fence=2)
    publish_rest(mirror, standing("complete"), home)
    assert (mirror.published(), mirror.unpublished()) == ({}, [NAME]), "left to its successor"
    Mirror(url, "toy").save(write(tmp_path / "b" / NAME, 3, "summary"), fence=1)
    publish_rest(mirror, standing("complete"), home)
    assert (epochs_at(url), mirror.unpublished()) == (3, [])


def test_a_pruned_run_is_fetched_with_its_checkpoints(tmp_path: Path, url: str) -> None:
    """A sweep without pruning continues it; one that is complete needs none."""
    mirror = Mirror(url, "toy")
    home, other = tmp_path / "home" / "out" / "toy", tmp_path / "other" / "out" / "toy"
    mirror.publish(write(tmp_path / "a" / NAME, 2, "pruned"))
    fetch_records(mirror, SWEEP, standing("open"), home)
    record = RunRecord(home / NAME)
    refuse_without_checkpoints(record, RUN.config)
    assert (record.checkpoints / "000002" / "weights").read_text() == "xx"
    mirror.publish(write(tmp_path / "b" / NAME, 3, "summary"))
    fetch_records(mirror, SWEEP, standing("open"), other)
    assert list(RunRecord(other / NAME).checkpoints.iterdir()) == []
