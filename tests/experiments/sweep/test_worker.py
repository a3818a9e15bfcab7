"""A worker: each task once, whatever others do, and every kind of end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from noisin.experiments.sweep import Sweep, worker
from noisin.experiments.sweep.definition import Pruning
from noisin.experiments.sweep.ledger import TASK, WORKER, sampler, suggest
from noisin.experiments.sweep.outcome import find, note
from noisin.experiments.sweep.space import Distribution, Search
from noisin.experiments.sweep.turn import Turn
from noisin.experiments.sweep.worker import Worker
from noisin.training import Interrupted, RunRecord, Trainer
from noisin.training.lock import locked
from noisin.training.signals import Flag, caught
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
    Trainer(config, tmp_path / "alone").fit()
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
    with Turn(tmp_path):
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
    assert "no finite number at step" in content["message"]
    assert content["config"] == sweep.tasks[0].runs[0].config.hash()
    assert content["epochs"] == 0
    assert toy.work(sweep, tmp_path, "two") == [], "it would diverge again"


def test_what_fails_is_tried_again_by_the_next_command(
    two: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = Trainer.fit

    def fails(self: Trainer, *args: Any) -> RunRecord:
        if self.config.train.lr == 1.0:
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


def stopped_after_an_epoch(sweep: Sweep, out: Path) -> int:
    """The exit code of a worker that hears a signal when the first epoch is over."""
    flag = Flag()

    def tell(message: dict[str, Any]) -> None:
        if message.get("finished") == 1:
            flag.signum = signal.SIGINT

    with pytest.raises(Interrupted) as stopped:
        Worker(toy.job(sweep, out), flag, tell).work()
    return stopped.value.exit_code


def test_a_signal_saves_and_the_next_worker_goes_on(two: Sweep, tmp_path: Path) -> None:
    assert stopped_after_an_epoch(two, tmp_path) == 130
    assert toy.states(two, tmp_path) == ["open"] * 2
    assert len(RunRecord(toy.folder(two, tmp_path)).metrics) == 1
    assert toy.trials(two, tmp_path) == [(0, "FAIL"), (1, "WAITING")]
    assert toy.work(two, tmp_path, "two").trained == ["lr-2-seed-1111", "lr-1-seed-1111"]
    Trainer(two.tasks[0].runs[0].config, tmp_path / "alone").fit()
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


class Died(BaseException):
    """As if the process were gone: neither Optuna nor the worker sees it coming."""


def take(
    sweep: Sweep, out: Path, by: list[Any] | None, then: Callable[[optuna.Trial], Any] = id
) -> int:
    """Take the next task as a worker does that dies at once; return its number."""
    ledger = toy.ledger(sweep, out)

    def dies(trial: optuna.Trial) -> float:
        if by is not None:
            trial.set_user_attr(WORKER, by)
        then(trial)
        raise Died

    with Turn(out):
        trial = ledger.next()
        assert trial is not None
        with pytest.raises(Died):
            ledger.study.optimize(dies, n_trials=1)
    number: int = trial.user_attrs[TASK]
    return number


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize("when", ["in taking it", "at work"])
def test_what_a_dead_worker_was_at_is_taken_over(when: str, two: Sweep, tmp_path: Path) -> None:
    by = None if when == "in taking it" else [socket.gethostname(), dead_process()]
    assert take(two, tmp_path, by) == 0
    assert toy.trials(two, tmp_path) == [(0, "RUNNING"), (1, "WAITING")]
    assert toy.work(two, tmp_path).trained == ["lr-2-seed-1111", "lr-1-seed-1111"]
    assert toy.trials(two, tmp_path) == [(0, "FAIL"), (1, "COMPLETE"), (0, "COMPLETE")]


def test_what_others_are_at_is_left_to_them(two: Sweep, tmp_path: Path) -> None:
    """A process that lives, and one on another machine, of which the heartbeat will tell."""
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    take(two, tmp_path, [socket.gethostname(), sleeper.pid])
    take(two, tmp_path, ["elsewhere", 1])
    with Turn(tmp_path):
        assert toy.ledger(two, tmp_path).next() is None
    sleeper.kill()
    sleeper.communicate()
    with Turn(tmp_path):
        trial = toy.ledger(two, tmp_path).next()
    assert trial is not None
    assert trial.user_attrs == {TASK: 0}


def test_a_trial_without_a_heartbeat_is_failed_by_optuna_and_taken_over(
    two: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a worker on another machine."""
    from noisin.experiments.sweep import ledger as module

    monkeypatch.setattr(module, "HEARTBEAT", 1)
    monkeypatch.setattr(module, "GRACE", 1)
    take(two, tmp_path, ["elsewhere", 1])
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


# Searches


def search(text: Path, trials: int, sampler: str = "random", **options: Any) -> Sweep:
    space = {
        "train.lr": Distribution(low=0.5, high=4.0),
        "model.tied": Distribution(choices=[True]),
    }
    chosen = Search(trials=trials, sampler=sampler, space=space)  # type: ignore[arg-type]
    train = options.pop("train", {"epochs": 1, "bptt": 40})
    return Sweep(name="found", settings=toy.settings(text, **train), search=chosen, **options)


def chosen_lrs(sweep: Sweep, out: Path) -> list[float]:
    standings = toy.ledger(sweep, out).survey()
    return [standing.runs[0][0].config.train.lr for standing in standings]


def test_a_random_search_does_not_depend_on_who_draws(text: Path, tmp_path: Path) -> None:
    sweep = search(text, 3, seeds=[1, 2])
    toy.work(sweep, tmp_path / "a")
    assert toy.states(sweep, tmp_path / "a") == ["complete+complete"] * 3
    lrs = chosen_lrs(sweep, tmp_path / "a")
    assert len(set(lrs)) == 3
    assert all(0.5 <= lr <= 4 for lr in lrs)
    values = [t.value for t in toy.ledger(sweep, tmp_path / "a").study.get_trials()]
    standings = toy.ledger(sweep, tmp_path / "a").survey()
    means = [sum(end.value for end in s.outcomes) / 2 for s in standings]
    assert values == pytest.approx(means)
    take(sweep, tmp_path / "b", None)  # a worker that dies before it has drawn
    toy.work(sweep, tmp_path / "b")
    assert chosen_lrs(sweep, tmp_path / "b") == lrs


def test_a_killed_trial_keeps_what_it_has_drawn(text: Path, tmp_path: Path) -> None:
    sweep = search(text, 2, "tpe")
    assert sweep.search is not None
    drawn: dict[str, Any] = {}
    take(sweep, tmp_path, None, lambda trial: drawn.update(suggest(trial, sweep.search)))
    assert [s.task is None for s in toy.ledger(sweep, tmp_path).survey()] == [False, True]
    toy.work(sweep, tmp_path)
    assert toy.states(sweep, tmp_path) == ["complete"] * 2
    assert chosen_lrs(sweep, tmp_path)[0] == drawn["train.lr"]


def test_the_tree_sampler_learns(text: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Told of many trials, it draws near the best of them."""
    sweep = search(text, 13, "tpe")
    ledger, search_ = toy.ledger(sweep, tmp_path), sweep.search
    assert search_ is not None
    distributions = {
        "train.lr": optuna.distributions.FloatDistribution(0.5, 4.0),
        "model.tied": optuna.distributions.CategoricalDistribution([True]),
    }
    for i in range(12):
        lr = 0.5 + i * 3.5 / 12
        ledger.study.add_trial(
            optuna.create_trial(
                params={"train.lr": lr, "model.tied": True},
                distributions=distributions,
                value=(lr - 3.7) ** 2,
            )
        )
    drawn: list[float] = []

    def draw(trial: optuna.Trial) -> float:
        drawn.append(suggest(trial, search_)["train.lr"])
        raise optuna.TrialPruned

    for number in range(8):
        ledger.study.sampler = sampler(search_, number)
        ledger.study.optimize(draw, n_trials=1)
    assert sum(lr > 2.5 for lr in drawn) >= 6


def test_settings_that_cannot_be_are_a_failure_of_their_own(text: Path, tmp_path: Path) -> None:
    """Each end of each range is right by itself, and a combination is not."""
    space = {
        "noise.family": Distribution(choices=["gaussian", "bernoulli"]),
        "noise.gamma": Distribution(choices=[0.5, 1.0, 1.5]),
    }
    base = toy.settings(text, epochs=1, bptt=40)
    sweep = Sweep(
        name="mixed", settings=base, search=Search(trials=8, sampler="random", space=space)
    )
    toy.work(sweep, tmp_path)
    ended = toy.states(sweep, tmp_path)
    assert set(ended) == {"complete", "failed"}
    failed = [s for s in toy.ledger(sweep, tmp_path).survey() if s.task is None]
    assert all("keep probability" in s.outcomes[0].message for s in failed)
    assert toy.work(sweep, tmp_path) == []


def test_more_trials_go_on_with_the_search(text: Path, tmp_path: Path) -> None:
    short, longer = search(text, 1, "tpe"), search(text, 2, "tpe")
    assert len(toy.work(short, tmp_path).trained) == 1
    assert len(toy.work(longer, tmp_path).trained) == 1
    assert toy.states(longer, tmp_path) == ["complete"] * 2
    assert toy.work(short, tmp_path) == []


def test_a_search_waits_for_a_seed_that_another_process_is_at(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks again now and then, and does not spin."""
    monkeypatch.setattr(worker, "ASIDE", 0.2)
    monkeypatch.setattr(worker, "PAUSE", 0.05)
    sweep = search(text, 1, seeds=[1, 2])
    first = search(text, 1, seeds=[2])
    toy.work(first, tmp_path / "copy")  # to know what will be drawn
    run = toy.ledger(first, tmp_path / "copy").survey()[0].runs[0][0]
    busy = tmp_path / "out" / "found" / f"{run.name}-{run.digest[:12]}"
    busy.mkdir(parents=True)
    at_work = locked(busy)
    at_work.__enter__()
    told, timer = toy.Told(), threading.Timer(1.0, at_work.__exit__, (None, None, None))

    def tell(message: dict[str, Any]) -> None:
        told.append(message)
        if message == {"over": run.name} and timer.ident is None:
            timer.start()  # the first seed is done, and the second was found to be taken

    Worker(toy.job(sweep, tmp_path / "out"), Flag(), tell).work()
    timer.join()
    assert told.trained == [run.name.replace("seed-2", "seed-1"), run.name]
    counted = [state for _, state in toy.trials(sweep, tmp_path / "out")]
    assert counted[-1] == "COMPLETE"
    assert 1 <= counted.count("FAIL") <= 8


# Pruning


def test_successive_halving(text: Path, tmp_path: Path) -> None:
    """The best comes first here, so the others end at the first rung."""
    sweep = toy.grid(text, 0.3, 1e-3, 1e-4, train={"epochs": 4}, pruning=Pruning(min_epochs=2))
    toy.work(sweep, tmp_path)
    assert toy.states(sweep, tmp_path) == ["complete", "pruned", "pruned"]
    assert toy.trials(sweep, tmp_path) == [(0, "COMPLETE"), (1, "PRUNED"), (2, "PRUNED")]
    assert len(RunRecord(toy.folder(sweep, tmp_path, 1)).metrics) == 2
    told = json.loads((toy.folder(sweep, tmp_path, 1) / "pruned.json").read_text())
    assert told["message"] == "others were better after 2 epochs."
    assert toy.work(sweep, tmp_path) == []
    without = sweep.model_copy(update={"pruning": None})
    assert toy.work(without, tmp_path).trained == ["lr-0.001-seed-1111", "lr-0.0001-seed-1111"]
    assert toy.states(without, tmp_path) == ["complete"] * 3
    assert not list(tmp_path.rglob("pruned.json"))


def test_a_search_prunes_by_its_first_seed(text: Path, tmp_path: Path) -> None:
    sweep = search(
        text, 3, train={"epochs": 3, "bptt": 40}, seeds=[1, 2], pruning=Pruning(min_epochs=1)
    )
    toy.work(sweep, tmp_path)
    ended = toy.states(sweep, tmp_path)
    assert ended[0] == "complete+complete", "the first to come goes on"
    assert set(ended) <= {"complete+complete", "pruned+open"}
    study = toy.ledger(sweep, tmp_path).study
    assert sorted(study.get_trials()[0].intermediate_values) == [1, 2, 3]


def test_a_run_that_goes_on_reports_each_epoch_once(text: Path, tmp_path: Path) -> None:
    """The study hears of an epoch that it had not heard of when the run was stopped."""
    sweep = toy.grid(text, 2.0, train={"epochs": 3}, pruning=Pruning(min_epochs=3))
    stopped_after_an_epoch(sweep, tmp_path)
    toy.work(sweep, tmp_path)
    first, second = toy.ledger(sweep, tmp_path).study.get_trials()
    assert first.intermediate_values == {}
    metrics = RunRecord(toy.folder(sweep, tmp_path)).metrics
    assert second.intermediate_values == {line["epoch"]: line["valid"] for line in metrics}


def test_a_note_about_other_settings_does_not_count(two: Sweep, tmp_path: Path) -> None:
    toy.work(two, tmp_path)
    folder = toy.folder(two, tmp_path)
    (folder / "summary.json").unlink()
    note(folder, "diverged", two.tasks[1].runs[0].config, "another run", "one")
    assert toy.states(two, tmp_path) == ["open", "complete"]
    (folder / "diverged.json").write_text("{")
    assert toy.states(two, tmp_path) == ["open", "complete"]
