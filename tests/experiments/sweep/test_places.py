"""Machines that share no folder: leases decide, records are copied, and nothing is made twice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from noisin import training
from noisin.errors import NoisinError
from noisin.experiments.collection import collect
from noisin.experiments.gathering import Gathered, gather
from noisin.experiments.sweep import Sweep, driver
from noisin.experiments.sweep.leases import Lease
from noisin.experiments.sweep.ledger import SETTINGS
from noisin.experiments.sweep.mirror import Mirror
from noisin.experiments.sweep.standing import Standing
from noisin.experiments.sweep.worker import Job, Worker
from noisin.training.runtime.signals import Flag
from tests.experiments.sweep import toy
from tests.experiments.sweep.test_search import search
from tests.training.toy import result


@pytest.fixture
def two(text: Path) -> Sweep:
    return toy.grid(text, 1.0, 2.0)


@pytest.fixture
def url() -> Iterator[str]:
    """A file system without locks or renames, that only this process sees."""
    yield "memory://bucket/runs"
    fsspec.filesystem("memory").rm("/", recursive=True)


def job(sweep: Sweep, machine: Path, **options: Any) -> Job:
    """The job of a worker with a folder of its own, and the database that all share."""
    out = machine / "out"
    (out / sweep.name).mkdir(parents=True, exist_ok=True)
    storage = f"sqlite:///{machine.parent / 'study.db'}"
    known = {"session": machine.name, "threads": 1, "storage": storage}
    return Job(sweep=sweep, out=out, **known | options)


def records(*machines: Path) -> dict[str, list[str]]:
    """The complete runs, by machine."""
    return {
        machine.name: [run.folder.name[:-13] for run in collect(machine / "out") if run.complete]
        for machine in machines
    }


def test_a_finished_point_elsewhere_is_not_repeated(two: Sweep, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    told = toy.Told()
    Worker(job(two, a), Flag(), lambda _: None).work()
    Worker(job(two, b), Flag(), told.append).work()
    assert told == []
    assert records(a, b) == {"a": ["lr-1-seed-1111", "lr-2-seed-1111"], "b": []}
    here, there = (job(two, machine).ledger().survey() for machine in (a, b))
    assert [s.outcomes[0].row for s in there] == [s.outcomes[0].row for s in here], "the scores too"
    shutil.rmtree(a / "out" / "toy")
    Worker(job(two, b), Flag(), told.append).work()
    assert told == [], "what is lost elsewhere is not known here"
    Worker(job(two, a), Flag(), told.append).work()
    assert sorted(told.trained) == ["lr-1-seed-1111", "lr-2-seed-1111"]


def test_what_another_machine_completed_was_begun_here(two: Sweep, tmp_path: Path) -> None:
    """Killed when there was nothing but a lock in the folder, or nothing but the settings."""
    a, b = tmp_path / "a", tmp_path / "b"
    Worker(job(two, a), Flag(), lambda _: None).work()
    first, second = sorted((a / "out" / "toy").glob("lr-*"))
    here = b / "out" / "toy"
    for run in (first, second):
        (here / run.name).mkdir(parents=True)
        (here / run.name / ".lock").write_text("12345\n")
    shutil.copy(second / "config.json", here / second.name)
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    standings = driver.run(two, b / "out", jobs=1, storage=storage)
    assert [end.state for standing in standings for _, end in standing.runs] == ["complete"] * 2
    assert records(b) == {"b": []}


@pytest.mark.parametrize("when", ["in the middle", "when it is complete"])
def test_a_worker_that_lost_its_lease_does_not_complete(
    when: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if its machine had been cut off: another has made the run meanwhile."""
    sweep = toy.grid(text, 1.0)
    a, b = tmp_path / "a", tmp_path / "b"
    first, told = Worker(job(sweep, a), Flag(), lambda _: None), toy.Told()

    def overtake() -> None:
        (row,) = first.ledger.leases.rows()
        if row.state == "open" and row.fence == 1:
            first.ledger.leases.expire(row)
            Worker(job(sweep, b), Flag(), told.append).work()

    if when == "in the middle":
        monkeypatch.setattr(Lease, "check", lease_check(overtake))
    else:
        end = first.ledger.end
        monkeypatch.setattr(first.ledger, "end", lambda *arguments: overtake() or end(*arguments))
    first.work()
    assert told.trained == ["lr-1-seed-1111"]
    assert records(a, b) == {"a": [], "b": ["lr-1-seed-1111"]}
    assert toy_trials(first) == [(0, "FAIL"), (0, "COMPLETE")]
    training.run(sweep.tasks[0].runs[0].config, tmp_path / "alone")
    assert result(next((b / "out" / "toy").glob("lr-*"))) == result(tmp_path / "alone")


def lease_check(overtake: Any) -> Any:
    """``Lease.check`` of a process that was stopped for longer than its lease."""
    check = Lease.check

    def checked(self: Lease) -> None:
        overtake()
        self._renewed -= 2 * self.leases.lease
        check(self)

    return checked


def toy_trials(one: Worker) -> list[tuple[int, str]]:
    trials = one.ledger.study.get_trials(deepcopy=False)
    return [(trial.user_attrs["task"], trial.state.name) for trial in trials]


def stopped(sweep: Sweep, machine: Path, **options: Any) -> None:
    """A worker that hears a signal when the first epoch is over."""
    flag = Flag()

    def tell(message: dict[str, Any]) -> None:
        if message.get("finished") == 1:
            flag.signum = 15

    with pytest.raises(training.Interrupted):
        Worker(job(sweep, machine, **options), flag, tell).work()


def test_a_run_continues_on_another_machine_from_a_url(
    text: Path, tmp_path: Path, url: str
) -> None:
    sweep = toy.grid(text, 1.0, train={"epochs": 3})
    a, b = tmp_path / "a", tmp_path / "b"
    stopped(sweep, a, url=url)
    assert Mirror(url, "toy").published() == {}
    shutil.rmtree(a)
    told = toy.Told()
    Worker(job(sweep, b, url=url), Flag(), told.append).work()
    (begun,) = [
        message["begun"] for message in told if message.keys() == {"run", "epochs", "begun"}
    ]
    assert begun == pytest.approx(1 / 3), "one epoch of three"
    training.run(sweep.tasks[0].runs[0].config, tmp_path / "alone")
    (folder,) = (b / "out" / "toy").glob("lr-*")
    assert result(folder) == result(tmp_path / "alone")
    mirror = Mirror(url, "toy")
    assert mirror.unpublished() == []
    assert gather([url], tmp_path / "all") == Gathered(1, 0, 0)
    assert result(tmp_path / "all" / "toy" / folder.name) == result(tmp_path / "alone")


def test_a_stale_worker_cannot_change_the_copy(text: Path, tmp_path: Path, url: str) -> None:
    """The fence is part of the place: the newest manifest is read, whoever writes last."""
    folder, other = tmp_path / "run", tmp_path / "other" / "run"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("new\n")
    Mirror(url, "toy").save(folder, fence=2)
    (folder / "metrics.jsonl").write_text("stale\n")
    Mirror(url, "toy").save(folder, fence=1)
    other.mkdir(parents=True)
    (other / "metrics.jsonl").write_text("old\n")
    Mirror(url, "toy").restore(other)
    assert (other / "metrics.jsonl").read_text() == "new\n"
    Mirror(url, "toy").publish(other)
    assert Mirror(url, "toy").unpublished() == []


def test_a_damaged_copy_is_refused(tmp_path: Path, url: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("new\n")
    mirror = Mirror(url, "toy")
    mirror.save(folder, fence=1)
    (copied,) = (n for n in mirror.files.find("/bucket/runs") if not n.endswith("manifest.json"))
    mirror.files.pipe_file(copied, b"damaged")
    (folder / "metrics.jsonl").write_text("old\n")
    with pytest.raises(NoisinError, match="has no valid copy of"):
        mirror.restore(folder)
    assert (folder / "metrics.jsonl").read_text() == "old\n", "left as it was"


def test_the_command_with_a_url(
    two: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """The database is lost: the records at the URL are enough, and nothing is made again."""
    monkeypatch.setattr(driver, "WorkerPool", InProcess)
    url = f"file://{tmp_path / 'bucket'}"
    first, second = (f"sqlite:///{tmp_path / name}.db" for name in ("one", "two"))
    monkeypatch.setattr(driver, "working_folder", lambda _: tmp_path / "a")
    assert all(standing.is_over for standing in driver.run(two, url, storage=first))
    assert len(InProcess.told.trained) == 2
    monkeypatch.setattr(driver, "working_folder", lambda _: tmp_path / "b")
    assert all(standing.is_over for standing in driver.run(two, url, storage=second))
    assert len(InProcess.told.trained) == 2
    assert len(collect(tmp_path / "bucket" / "toy")) == 2


class InProcess:
    """A pool of one worker, in this process."""

    told = toy.Told()

    def __init__(self, job: Job, ledger: Any, size: int, *_: Any) -> None:
        self.job, self.ledger = job, ledger
        self.standings: list[Standing] = []

    def work(self, flag: Flag) -> None:
        Worker(self.job, flag, self.told.append).work()
        self.standings = self.ledger.survey()


def test_records_are_gathered_once_and_conflicts_are_refused(two: Sweep, tmp_path: Path) -> None:
    a, b, out = tmp_path / "a", tmp_path / "b", tmp_path / "all"
    Worker(job(two, a), Flag(), lambda _: None).work()
    (one, other) = sorted((a / "out" / "toy").glob("lr-*"))
    (b / "out" / "toy").mkdir(parents=True)
    shutil.move(other, b / "out" / "toy")
    shutil.copytree(one, b / "out" / "toy" / one.name)  # made on both: an equal record
    (b / "out" / "toy" / "x").mkdir()
    sources = [str(a / "out"), str(b / "out")]
    assert gather(sources, out) == Gathered(2, 1, 0)
    assert sorted(path.name for path in (out / "toy").iterdir()) == sorted([one.name, other.name])
    assert result(out / "toy" / one.name) == result(one)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert gather(sources, out) == Gathered(0, 3, 0)
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    copy = b / "out" / "toy" / one.name
    summary = json.loads((copy / "summary.json").read_text())
    summary["best"]["test"]["nats"] += 1e-9
    (copy / "summary.json").write_text(json.dumps(summary))
    for target in (out, tmp_path / "new"):
        with pytest.raises(NoisinError, match="are records of the same settings and differ"):
            gather(sources, target)
    assert not (tmp_path / "new").exists()
    (copy / "summary.json").unlink()
    assert gather(sources, tmp_path / "new", checkpoints=False) == Gathered(2, 0, 1)
    assert not list((tmp_path / "new").rglob("checkpoints"))
    (copy / "config.json").write_text("{")
    with pytest.raises(NoisinError, match="cannot be used"):
        gather(sources, tmp_path / "newer")


def test_the_sampler_is_recorded(text: Path, tmp_path: Path) -> None:
    """With its settings, which Optuna's versions have different defaults for."""
    import optuna

    sweep = search(text, 1, "tpe")
    known = toy.ledger(sweep, tmp_path).study.user_attrs[SETTINGS]
    assert (known["sampler"], known["multivariate"], known["constant_liar"]) == ("tpe", True, True)
    assert known["optuna"] == optuna.__version__
