"""Searches, which draw their points, and pruning, which ends runs early."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path
from typing import Any

import optuna
import pytest

from noisin._util.lock import locked
from noisin.experiments.sweep import Sweep, worker
from noisin.experiments.sweep.definition import Pruning
from noisin.experiments.sweep.sampling import sampler, suggest
from noisin.experiments.sweep.space import Distribution, Search
from noisin.experiments.sweep.worker import Worker
from noisin.training import RunRecord
from noisin.training.runtime.signals import Flag
from tests.experiments.sweep import toy


def search(text: Path, trials: int, sampler: str = "random", **options: Any) -> Sweep:
    space = {
        "train.lr": Distribution(low=0.5, high=4.0),
        "model.tied": Distribution(choices=[True]),
    }
    chosen = Search(trials=trials, sampler=sampler, space=space)
    train = options.pop("train", {"epochs": 1, "bptt": 40})
    return Sweep(name="found", settings=toy.settings(text, **train), search=chosen, **options)


def chosen_lrs(sweep: Sweep, out: Path) -> list[float]:
    standings = toy.ledger(sweep, out).survey()
    return [standing.runs[0][0].config.train.lr for standing in standings]


@pytest.mark.long
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
    toy.take(sweep, tmp_path / "b", toy.dead())  # a worker that dies before it has drawn
    toy.work(sweep, tmp_path / "b")
    assert chosen_lrs(sweep, tmp_path / "b") == lrs


def test_a_killed_trial_keeps_what_it_has_drawn(text: Path, tmp_path: Path) -> None:
    sweep = search(text, 2, "tpe")
    assert sweep.search is not None
    drawn: dict[str, Any] = {}
    toy.take(sweep, tmp_path, toy.dead(), lambda trial: drawn.update(suggest(trial, sweep.search)))
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
    toy.stopped_after_an_epoch(sweep, tmp_path)
    toy.work(sweep, tmp_path)
    first, second = toy.ledger(sweep, tmp_path).study.get_trials()
    assert first.intermediate_values == {}
    metrics = RunRecord(toy.folder(sweep, tmp_path)).metrics
    assert second.intermediate_values == {
        line["epoch"]: pytest.approx(math.exp(line["valid"]["nats"])) for line in metrics
    }
