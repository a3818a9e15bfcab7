"""A worker: each task once, whatever others do, and every kind of end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from noisin import training
from noisin._util.lock import locked
from noisin.errors import InvalidValue
from noisin.experiments.sweep import Sweep, worker
from noisin.experiments.sweep.engine import available_threads
from noisin.experiments.sweep.ledger import here
from noisin.experiments.sweep.lock import SweepLock
from noisin.experiments.sweep.outcome import Outcome, find, note
from noisin.experiments.sweep.standing import Standing
from noisin.experiments.sweep.worker import Worker
from noisin.training import Interrupted, RunRecord, Trainer
from noisin.training.runtime.environment import cores
from noisin.training.runtime.signals import Flag, caught
from tests.experiments.sweep import toy
from tests.training.toy import result


@pytest.fixture
def two(text: Path) -> Sweep:
    return toy.grid(text, 1.0, 2.0)


def test_each_run_once(two: Sweep, tmp_path: Path) -> None:
    assert toy.work(two, tmp_path).trained == ["lr-1-seed-1111", "lr-2-seed-1111"]
    assert toy.states(two, tmp_path) == ["complete"] * 2
    assert toy.trials(two, tmp_path) == [(0, "COMPLETE"), (1, "COMPLETE")]
    assert sorted(p.name[:-13] for p in (tmp_path / "toy").glob("lr-*")) == [
        "lr-1-seed-1111",
        "lr-2-seed-1111",
    ]
    assert toy.work(two, tmp_path, "two") == [], "a finished sweep runs nothing again"
    assert toy.trials(two, tmp_path) == [(0, "COMPLETE"), (1, "COMPLETE")]


def test_a_run_is_that_of_the_trainer(two: Sweep, text: Path, tmp_path: Path) -> None:
    """After another run in the same process, bit for bit."""
    toy.work(two, tmp_path)
    config = two.tasks[1].runs[0].config
    training.run(config, tmp_path / "alone")
    assert result(toy.folder(two, tmp_path, 1)) == result(tmp_path / "alone")


def test_other_sweeps_of_the_folder_count(two: Sweep, text: Path, tmp_path: Path) -> None:
    toy.work(two, tmp_path)
    other = toy.grid(text, 2.0, 3.0, name="other")
    assert toy.work(other, tmp_path).trained == ["lr-3-seed-1111"]
    assert toy.states(other, tmp_path) == ["complete"] * 2
    assert len(list((tmp_path / "other").glob("lr-*"))) == 1
    assert toy.trials(other, tmp_path) == [(0, "COMPLETE"), (1, "COMPLETE")], "the study learns it"


def test_a_lost_study_and_a_lost_run(two: Sweep, tmp_path: Path) -> None:
    """The folders are the truth: what they have is not run again, what they lack is."""
    toy.work(two, tmp_path)
    (tmp_path / "toy" / "study.db").unlink()
    assert toy.work(two, tmp_path).trained == []
    with SweepLock(tmp_path):
        toy.ledger(two, tmp_path).recover()
    assert toy.trials(two, tmp_path) == [(0, "COMPLETE"), (1, "COMPLETE")]
    shutil.rmtree(toy.folder(two, tmp_path, 1))
    assert toy.work(two, tmp_path).trained == ["lr-2-seed-1111"]
    assert toy.states(two, tmp_path) == ["complete"] * 2


def test_divergence_is_noted_and_the_sweep_goes_on(text: Path, tmp_path: Path) -> None:
    sweep = toy.grid(text, 1e60, 2.0, train={"clip": 0})
    toy.work(sweep, tmp_path)
    assert toy.states(sweep, tmp_path) == ["diverged", "complete"]
    assert toy.trials(sweep, tmp_path) == [(0, "PRUNED"), (1, "COMPLETE")]
    content = json.loads((toy.folder(sweep, tmp_path) / "diverged.json").read_text())
    assert "the loss is not finite at step" in content["message"]
    assert content["config"] == sweep.tasks[0].runs[0].config.hash()
    assert content["epochs"] == 0
    assert toy.work(sweep, tmp_path, "two") == [], "it would diverge again"


def test_what_fails_is_tried_again_by_the_next_command(
    two: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = Trainer.fit

    def fails(self: Trainer, *args: Any) -> RunRecord:
        if self.train.lr == 1.0:
            raise OSError(28, "No space left on device")
        return fit(self, *args)

    monkeypatch.setattr(Trainer, "fit", fails)
    toy.work(two, tmp_path)
    assert toy.states(two, tmp_path) == ["failed", "complete"]
    (first, _) = toy.ledger(two, tmp_path).survey()
    assert "No space left on device" in first.outcomes[0].message
    monkeypatch.setattr(Trainer, "fit", fit)
    assert toy.work(two, tmp_path, "two").trained == ["lr-1-seed-1111"]
    assert toy.states(two, tmp_path, "two") == ["complete"] * 2
    assert not list(tmp_path.rglob("failed.json"))


def test_what_failed_in_two_commands_at_once_has_ended_for_both(text: Path, tmp_path: Path) -> None:
    """The note in the folder is that of the second, and the first does not wait for another try."""
    sweep = toy.grid(text, 1.0)
    (run,) = sweep.tasks[0].runs
    folder = tmp_path / "toy" / f"{run.name}-{run.digest[:12]}"
    folder.mkdir(parents=True)
    commands = [toy.ledger(sweep, tmp_path, session) for session in ("one", "two")]
    commands[0].recover()
    for command in commands:
        lease = command.take()
        assert lease is not None
        note(folder, "failed", run.config, "the disk is full", command.session)
        failed = Standing(sweep.tasks[0], (Outcome("failed", message="the disk is full"),))
        command.end(lease, command.trial(lease), failed)
    for command in commands:
        assert [end.state for end in command.survey()[0].outcomes] == ["failed"]
        assert (command.take(), command.is_over()) == (None, True)
    assert not toy.ledger(sweep, tmp_path, "three").is_over()


def test_a_signal_saves_and_the_next_worker_goes_on(two: Sweep, tmp_path: Path) -> None:
    assert toy.stopped_after_an_epoch(two, tmp_path) == 130
    assert toy.states(two, tmp_path) == ["open"] * 2
    assert len(RunRecord(toy.folder(two, tmp_path)).metrics) == 1
    assert toy.trials(two, tmp_path) == [(0, "FAIL")]
    told = toy.work(two, tmp_path, "two")
    assert told.trained == ["lr-2-seed-1111", "lr-1-seed-1111"]
    begun = {message["run"]: message["begun"] for message in told if "begun" in message}
    assert begun == {"lr-2-seed-1111": 0.0, "lr-1-seed-1111": 0.5}, "one epoch of two"
    training.run(two.tasks[0].runs[0].config, tmp_path / "alone")
    assert result(toy.folder(two, tmp_path)) == result(tmp_path / "alone")


def test_a_signal_is_not_lost_with_the_run_it_came_in(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when the run is about to diverge, after the trainer has looked for the last time."""
    diverged = Trainer._diverged

    def signalled(self: Trainer, *args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return diverged(self, *args)

    monkeypatch.setattr(Trainer, "_diverged", signalled)
    sweep = toy.grid(text, 1e60, 2.0, train={"clip": 0})
    with caught() as flag, pytest.raises(Interrupted) as stopped:
        Worker(toy.job(sweep, tmp_path), flag, lambda _: None).work()
    assert stopped.value.exit_code == 143
    assert toy.states(sweep, tmp_path) == ["diverged", "open"]


def test_what_a_dead_worker_was_at_is_taken_over(two: Sweep, tmp_path: Path) -> None:
    assert toy.take(two, tmp_path, toy.dead()) == 0
    assert toy.trials(two, tmp_path) == [(0, "RUNNING")]
    assert toy.work(two, tmp_path).trained == ["lr-2-seed-1111", "lr-1-seed-1111"]
    assert toy.trials(two, tmp_path) == [(0, "FAIL"), (1, "COMPLETE"), (0, "COMPLETE")]


def test_what_others_are_at_is_left_to_them(two: Sweep, tmp_path: Path) -> None:
    """A process that lives, and one on another machine, of which the lease will tell."""
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    toy.take(two, tmp_path, (*here()[:-1], str(sleeper.pid)))
    toy.take(two, tmp_path, ("elsewhere", "pid:[1]", "1"))
    ledger = toy.ledger(two, tmp_path)

    def next_task() -> int | None:
        with SweepLock(tmp_path):
            ledger.recover()
        lease = ledger.take()
        return None if lease is None else lease.task

    assert next_task() is None
    sleeper.kill()
    sleeper.communicate()
    assert next_task() == 0
    assert next_task() is None


def test_what_is_over_is_told_once(two: Sweep, tmp_path: Path) -> None:
    """Runs are complete in their folders, and the study does not know it yet."""

    def look() -> list[tuple[int, str]]:
        with SweepLock(tmp_path):
            toy.ledger(two, tmp_path).recover()
        return toy.trials(two, tmp_path)

    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    toy.take(two, tmp_path, (*here()[:-1], str(sleeper.pid)))
    for task in two.tasks:
        run = task.runs[0]
        training.run(run.config, tmp_path / "toy" / f"{run.name}-{run.digest[:12]}")
    assert look() == [(0, "RUNNING"), (1, "COMPLETE")], "left to who is at it"
    sleeper.kill()
    sleeper.communicate()
    assert look() == [(0, "FAIL"), (1, "COMPLETE"), (0, "COMPLETE")], "it has died before"
    assert look() == [(0, "FAIL"), (1, "COMPLETE"), (0, "COMPLETE")]
    assert toy.work(two, tmp_path) == []


def test_a_lease_that_is_not_renewed_expires(two: Sweep, tmp_path: Path) -> None:
    """That of a worker on another machine."""
    toy.take(two, tmp_path, ("elsewhere", "pid:[1]", "1"), lease=0.5)
    assert toy.work(two, tmp_path).trained == ["lr-2-seed-1111", "lr-1-seed-1111"]
    assert toy.trials(two, tmp_path)[0] == (0, "FAIL")


def test_a_run_that_another_process_is_at_is_skipped(
    two: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock on the run folder decides; the task comes back when it is free."""
    monkeypatch.setattr(worker, "ASIDE", 0.0)
    monkeypatch.setattr(worker, "PAUSE", 0.0)
    config = two.tasks[0].runs[0].config
    busy = tmp_path / "train" / f"x-{config.hash()[:12]}"
    busy.mkdir(parents=True)
    assert find(tmp_path, config.hash()) == busy
    at_work = locked(busy)
    at_work.__enter__()

    def tell(message: dict[str, Any]) -> None:
        if message.get("over") == "lr-2-seed-1111":
            at_work.__exit__(None, None, None)

    Worker(toy.job(two, tmp_path), Flag(), tell).work()
    assert toy.states(two, tmp_path) == ["complete"] * 2
    assert toy.trials(two, tmp_path)[:2] == [(0, "FAIL"), (1, "COMPLETE")]
    assert RunRecord(busy).summary is not None


def test_a_worker_that_was_thought_dead_finishes(
    two: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its trial has been failed by others; its record stands, and nobody makes it again."""
    job, told = toy.job(two, tmp_path), toy.Told()

    def tell(message: dict[str, Any]) -> None:
        told.append(message)
        if message.get("finished") == 1 and message["run"] == "lr-1-seed-1111":
            study = toy.ledger(two, tmp_path).study
            study.tell(0, state=TrialState.FAIL)

    Worker(job, Flag(), tell).work()
    assert told.trained == ["lr-1-seed-1111", "lr-2-seed-1111"]
    assert toy.states(two, tmp_path) == ["complete"] * 2


def test_a_note_about_other_settings_does_not_count(two: Sweep, tmp_path: Path) -> None:
    toy.work(two, tmp_path)
    folder = toy.folder(two, tmp_path)
    (folder / "summary.json").unlink()
    note(folder, "diverged", two.tasks[1].runs[0].config, "another run", "one")
    assert toy.states(two, tmp_path) == ["open", "complete"]
    (folder / "diverged.json").write_text("{")
    assert toy.states(two, tmp_path) == ["open", "complete"]


@pytest.mark.parametrize("asked", ["1025", "100000", "9" * 5000])
def test_more_threads_than_torch_can_have(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    with pytest.raises(InvalidValue, match="OMP_NUM_THREADS: .* from 1 to 1024, got .*Unset it"):
        available_threads()


@pytest.mark.parametrize("asked", ["", "0", "many", "2,1", "-3"])
def test_threads_of_the_machine_where_no_number_is_given(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert available_threads() == (cores() or os.cpu_count())
