"""Runs sorted into tasks and points, with names and numbers for people."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from noisin import noise
from noisin.experiments import tags
from noisin.experiments.collection import collect
from noisin.experiments.group import PointGroup, TaskGroup, tasks
from noisin.experiments.seeds import Mean
from noisin.noise import ranges
from tests.experiments.records import write_run


def only_task(folder: Path) -> TaskGroup:
    (task,) = tasks(collect(folder))
    return task


def only_point(folder: Path) -> PointGroup:
    (point,) = only_task(folder).points
    return point


def write_seeds(folder: Path, *bests: float, **settings: Any) -> None:
    for seed, best in enumerate(bests):
        write_run(folder / str(seed), (90.0, best, 80.0), seed=seed, **settings)


def test_a_point_is_the_mean_over_its_seeds(tmp_path: Path) -> None:
    write_seeds(tmp_path, 69.0, 70.0, 71.0)
    point = only_point(tmp_path)
    assert point.valid == Mean(70.0, 1.0, 3)
    assert point.train == Mean(35.0, 0.5, 3)
    assert point.gap == Mean(35.0, 0.5, 3)
    assert point.test is not None
    assert point.test.mean == pytest.approx(0.95 * 70)
    assert point.best_epochs == "2 of 3"
    assert str(point.valid) == "70.0 ± 1.0"


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    write_seeds(tmp_path, 70.0)
    assert only_point(tmp_path).valid == Mean(70.0, None, 1)


def test_a_seed_counts_once(tmp_path: Path) -> None:
    """The same run with other limits is no second seed: the one that went further stands for it."""
    write_run(tmp_path / "short", (90.0, 72.0), train={"epochs": 2})
    write_run(tmp_path / "long", (90.0, 72.0, 70.0, 71.0), train={"epochs": 4})
    write_run(tmp_path / "open", (90.0, 72.0, 70.0, 71.0, 60.0), complete=False)
    point = only_point(tmp_path)
    assert [run.name for run in point.runs] == ["long"]
    assert sorted(run.name for run in point.others) == ["open", "short"]
    assert tags.of_point(point) == [tags.Tag("2 repeated", "plain")]
    assert only_task(tmp_path).runs == point.all_runs


def test_complete_runs_count_and_else_those_on_the_way(tmp_path: Path) -> None:
    write_run(tmp_path / "open", (60.0, 50.0), complete=False, seed=1)
    write_run(tmp_path / "begun", (), complete=False, seed=2)
    point = only_point(tmp_path)
    assert point.valid == Mean(50.0, None, 1)
    assert point.test is None
    assert not point.complete
    assert tags.of_point(point) == [tags.Tag("not complete", "plain")]
    write_run(tmp_path / "done", (90.0, 70.0), seed=3)
    point = only_point(tmp_path)
    assert point.valid == Mean(70.0, None, 1)
    assert [tag.words for tag in tags.of_point(point)] == ["2 not complete", "1 still falling"]


def test_a_point_without_numbers(tmp_path: Path) -> None:
    write_run(tmp_path / "run", (), complete=False)
    point = only_point(tmp_path)
    assert point.valid is point.train is point.gap is point.test is None
    assert point.best_epochs == ""


def test_what_is_infinite_has_no_mean(tmp_path: Path) -> None:
    write_run(tmp_path / "a", (70.0,), seed=1)
    write_run(tmp_path / "b", (None,), seed=2)
    assert only_point(tmp_path).valid is None
    assert Mean.of([1.7e308, 1.7e308]) == Mean(math.inf, None, 2)
    assert Mean.of([1.7e308, -1.7e308]) == Mean(math.inf, None, 2), "its spread is infinite"


def test_points_of_a_task_are_sorted_by_validation(tmp_path: Path) -> None:
    write_run(tmp_path / "a", (70.0,))
    write_run(tmp_path / "b", (60.0,), noise={"gamma": 0.5})
    write_run(tmp_path / "c", (50.0,), noise={"gamma": 1.0}, complete=False)
    write_run(tmp_path / "d", (None,), noise={"gamma": 2.0})
    labels = [point.label for point in only_task(tmp_path).points]
    assert labels == ["gaussian γ 0.5", "no noise", "gaussian γ 2", "gaussian γ 1"]


def test_a_task_is_a_text_and_a_model(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", model={"dropout": {"output": 0.5}})
    write_run(tmp_path / "c", data={"name": "ptb"})
    write_run(tmp_path / "d", model={"num_layers": 1, "embedding_size": 650, "cell": "gru"})
    found = {task.title: len(task.points) for task in tasks(collect(tmp_path))}
    assert found == {
        "manual, LSTM 2×650": 2,
        "ptb, LSTM 2×650": 1,
        "manual, GRU 1×650, embedding 650": 1,
    }


@pytest.mark.parametrize("known", [{"data": {"sha256": "f" * 64}}, {}])
def test_two_texts_by_one_name_are_two_tasks(tmp_path: Path, known: dict[str, Any]) -> None:
    """A built-in text, or a file, may have changed between two runs: they are not one seed."""
    write_run(tmp_path / "old")
    write_run(tmp_path / "new").write("environment.json", known)
    other = "ffffffff" if known else "unknown"
    titles = [f"manual, LSTM 2×650 (data {text})" for text in ("00000000", other)]
    assert [task.title for task in tasks(collect(tmp_path))] == titles


def test_a_label_tells_what_is_out_of_line(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", noise={"gamma": 0.5})
    write_run(tmp_path / "c", noise={"gamma": 0.5}, train={"lr": 10.0, "batch_size": 20})
    write_run(tmp_path / "d", noise={"gamma": 0.5, "feedback": False})
    write_run(tmp_path / "e", noise={"std": 0.5, "mode": "additive", "family": "beta"})
    write_run(tmp_path / "f", model={"dropout": {"output": 0.5}})
    write_run(tmp_path / "g", model={"dropout": {"output": 0.5}}, noise={"gamma": 0.5})
    labels = {p.runs[0].name: p.label for p in only_task(tmp_path).points}
    assert labels == {
        "a": "no noise",
        "b": "gaussian γ 0.5",
        "c": "gaussian γ 0.5, batch size 20, lr 10",
        "d": "gaussian γ 0.5, feedback False",
        "e": "additive beta std 0.5",
        "f": "dropout 0/0/0.5",
        "g": "dropout 0/0/0.5 + gaussian γ 0.5",
    }


@pytest.mark.parametrize("family", list(noise.FAMILIES))
def test_gamma_and_std_are_those_of_the_noise(family: str, tmp_path: Path) -> None:
    law = noise.FAMILIES[family].__name__
    drawn = noise.FAMILIES[family](0.7)
    assert ranges.std(law, 0.7) == pytest.approx(drawn.std)
    assert ranges.gamma(law, drawn.std) == pytest.approx(0.7)
    assert ranges.gamma(law, 0.3) == noise.FAMILIES[family].from_variance(0.09).gamma
    write_run(tmp_path / "gamma", noise={"family": family, "gamma": 0.7})
    write_run(tmp_path / "std", noise={"family": family, "std": drawn.std})
    for point in only_task(tmp_path).points:
        assert point.gamma == pytest.approx(0.7)
        assert point.std == pytest.approx(drawn.std)


def test_how_a_run_ended(tmp_path: Path) -> None:
    record = write_run(tmp_path / "run", (90.0,), complete=False)
    record.write("diverged.json", {"config": record.config.hash(), "message": "at step 3"})
    point = only_point(tmp_path)
    assert tags.of_run(point.runs[0], point) == [tags.Tag("diverged", "bad")]
    assert not math.isnan(point.valid.mean if point.valid else math.nan)
