"""The runs of a folder: found wherever they are, judged as the trainer judged, none lost."""

from __future__ import annotations

import inspect
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noisin.errors import InvalidValue
from noisin.experiments import searching
from noisin.experiments.collection import collect
from noisin.experiments.records import Run
from noisin.tasks.unit import PERPLEXITY
from noisin.training.scores import in_unit
from tests.experiments.records import line, write_run
from tests.training import toy


def only(folder: Path) -> Run:
    runs = collect(folder)
    assert not runs.damaged
    (run,) = runs
    return run


def summary(**changes: object) -> str:
    """The summary of a run as ``write_run`` writes it, with changes to its best epoch."""
    best = line(2, 70.0) | {"weights": "raw", "test": 66.5} | changes
    return json.dumps({"epochs": 3, "seconds": 61.0, "best": best})


def test_runs_are_found_at_any_depth_and_named_by_their_place(tmp_path: Path) -> None:
    for name in ("b", "a/deep/er", "a/x"):
        write_run(tmp_path / name)
    assert [run.name for run in collect(tmp_path)] == ["a/deep/er", "a/x", "b"]
    assert [run.name for run in collect(tmp_path / "a")] == ["deep/er", "x"]
    assert [run.name for run in collect(tmp_path / "a", tmp_path / "b")] == [
        "a/deep/er",
        "a/x",
        "b",
    ]
    assert only(tmp_path / "b").name == "b"
    assert only(tmp_path / "b").folder == tmp_path / "b"


def test_a_run_counts_once(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "run")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "a" / "run")
    (tmp_path / "a" / "circle").symlink_to(tmp_path / "a")
    assert [run.name for run in collect(tmp_path, tmp_path / "a")] == ["a/run"]


def test_a_run_behind_a_link_is_found(tmp_path: Path) -> None:
    write_run(tmp_path / "elsewhere" / "run")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    assert only(tmp_path / "runs").name == "run"


def test_the_best_epoch(tmp_path: Path) -> None:
    write_run(tmp_path / "run", (90.0, 70.0, 80.0))
    run = only(tmp_path)
    assert run.complete
    assert not run.unfinished
    assert run.best is not None
    assert run.best["epoch"] == 2
    assert (run.best["best_valid"], run.best["test"]) == (70.0, 66.5)
    assert (run.best["train"], run.best["weights"]) == (49.0, "raw")


@pytest.mark.parametrize(
    ("averaging", "averages", "weights", "epoch", "expected"),
    [
        ("nt", (None, None, None, 65.0, 64.0), "averaged", 5, 64.0),
        ("nt", (None, None, None, 75.0, 74.0), "raw", 2, 70.0),
        ("from_start", (95.0, 90.0, 85.0, 65.0, 66.0), "averaged", 4, 65.0),
        ("from_start", (95.0, 90.0, 85.0, 75.0, 74.0), "raw", 2, 70.0),
    ],
)
def test_the_weights_that_are_better_on_valid_count(
    averaging: str, averages: Any, weights: str, epoch: int, expected: float, tmp_path: Path
) -> None:
    valid = (90.0, 70.0, 80.0, 75.0, 72.0)
    lines = [json.dumps(line(i + 1, valid[i], valid_averaged=averages[i])) + "\n" for i in range(5)]
    settings = {"averaging": averaging, "nt_window": 1}
    write_run(tmp_path / "run", valid, complete=False, train=settings)
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(lines))
    run = only(tmp_path)
    assert run.best is not None
    assert (run.best["weights"], run.best["epoch"]) == (weights, epoch)
    assert run.best["best_valid"] == run.valid[epoch - 1] == expected
    raw, averaged = run.at_best("raw"), run.at_best("averaged")
    assert raw is not None
    assert averaged is not None
    assert (raw["best_valid"], averaged["best_valid"]) == (70.0, min(filter(None, averages)))


def test_averaged_weights_that_noisin_0_1_did_not_score(tmp_path: Path) -> None:
    """The raw ones counted, and their average was better on valid: test and train are unknown."""
    write_run(tmp_path / "run", (90.0, 70.0, 80.0), train={"averaging": "from_start"})
    path = tmp_path / "run" / "metrics.jsonl"
    lines = [line(i + 1, v, valid_averaged=v - 5) for i, v in enumerate((90.0, 70.0, 80.0))]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in lines))
    summary = tmp_path / "run" / "summary.json"
    content = json.loads(summary.read_text())
    content["best"]["valid_averaged"] = 65.0
    summary.write_text(json.dumps(content))
    run = only(tmp_path)
    assert run.best is not None
    assert run.not_scored
    assert (run.best["best_valid"], run.best["test"], run.best["train_clean"]) == (65, None, None)
    raw = run.at_best("raw")
    assert raw is not None
    assert (raw["best_valid"], raw["test"], raw["train_clean"]) == (70.0, 66.5, 35.0)


def test_it_is_the_epoch_that_the_trainer_chose(tmp_path: Path) -> None:
    settings = {"averaging": "nt", "epochs": 6, "nt_window": 1, "lr": 20.0}
    record = toy.fit(tmp_path / "run", train=settings)
    best = only(tmp_path).best
    assert best is not None
    for name in ("epoch", "weights"):
        assert best[name] == record.summary["best"][name]
    for name in ("test", "train_clean"):
        assert best[name] == in_unit(record.summary["best"][name], PERPLEXITY)


def test_a_run_that_goes_on(tmp_path: Path) -> None:
    write_run(tmp_path / "run", (90.0, 70.0), complete=False)
    run = only(tmp_path)
    assert not run.complete
    assert run.unfinished
    assert run.best is not None
    assert run.best["test"] is None


def test_a_run_before_its_first_epoch(tmp_path: Path) -> None:
    write_run(tmp_path / "run", (), complete=False)
    run = only(tmp_path)
    assert run.best is None
    assert run.unfinished


def test_infinite_perplexities(tmp_path: Path) -> None:
    write_run(tmp_path / "some", (None, 80.0, None))
    write_run(tmp_path / "all", (None, None))
    every, some = collect(tmp_path)
    assert some.best is not None
    assert every.best is not None
    assert (some.best["epoch"], some.best["best_valid"]) == (2, 80.0)
    assert (every.best["epoch"], every.best["best_valid"]) == (1, math.inf)


@pytest.mark.parametrize("end", ["diverged", "pruned", "failed"])
def test_how_a_run_of_a_sweep_ended(tmp_path: Path, end: str) -> None:
    record = write_run(tmp_path / "run", (90.0,), complete=False)
    note = {"config": record.config.hash(), "message": "the loss is no finite number"}
    record.write(f"{end}.json", note)
    run = only(tmp_path)
    assert (run.end, run.message) == (end, "the loss is no finite number")
    assert run.diverged == (run.message if end == "diverged" else None)
    record.write(f"{end}.json", note | {"config": "of other limits"})
    assert only(tmp_path).end is None


def test_runs_that_differ_in_seed_and_limits_are_one_point(tmp_path: Path) -> None:
    write_run(tmp_path / "a", seed=1)
    write_run(tmp_path / "b", seed=2, train={"epochs": 3}, data={"folder": "elsewhere"})
    write_run(tmp_path / "c", seed=1, noise={"gamma": 0.5})
    a, b, c = collect(tmp_path)
    assert a.point == b.point != c.point


def test_a_spread_is_the_same_as_gamma_and_as_std(tmp_path: Path) -> None:
    for name, noise in {
        "gamma": {"family": "bernoulli", "gamma": 0.8},
        "std": {"family": "bernoulli", "std": 0.5},
        "other": {"family": "bernoulli", "std": 0.8},
    }.items():
        write_run(tmp_path / name, noise=noise)
    gamma, other, std = collect(tmp_path)
    assert gamma.point == std.point != other.point


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config.json", "{", "cannot be parsed"),
        ("config.json", '{"train": {"lr": -1}}', "train.lr must be more than 0"),
        ("metrics.jsonl", "nonsense\n", "metrics.jsonl is damaged"),
        ("metrics.jsonl", "7\n", "line 1 must be of epoch 1, got 7"),
        ("metrics.jsonl", '{"epoch": 2}\n', "line 1 must be of epoch 1"),
        ("metrics.jsonl", '{"epoch": 1, "valid": "low"}\n', "valid must be 0 or more, or null"),
        ("metrics.jsonl", '{"epoch": 1, "valid": true}\n', "valid must be 0 or more, or null"),
        ("metrics.jsonl", '{"epoch": 1, "train": -3}\n', "train must be 0 or more, or null"),
        ("metrics.jsonl", '{"epoch": 1, "train": NaN}\n', "train must be 0 or more, or null"),
        ("metrics.jsonl", f'{{"epoch": 1, "train": 1{"0" * 400}}}\n', "train must be 0 or more"),
        ("metrics.jsonl", "", "is not one of the 0 in metrics.jsonl"),
        ("metrics.jsonl", "[" * 100_000 + "\n", "line 1: it is nested too deeply"),
        ("summary.json", "[]", "must contain a JSON object"),
        ("summary.json", "{}", "summary.json is damaged: best is missing. epochs is missing."),
        ("summary.json", summary(epoch=4), "its best epoch, 4, is not one of the 3"),
        ("summary.json", summary(valid=71.0), "its best epoch, 2, is not one of the 3"),
        ("summary.json", summary(test="1"), "best.test must be 0 or more, or null, got '1'"),
        ("summary.json", summary(weights="best"), "best.weights must be 'raw' or 'averaged', got"),
        ("summary.json", summary()[:-1] + ', "x": ' + "[" * 99 + "]" * 99 + "}", "too deeply"),
        ("environment.json", "{", "environment.json cannot be read"),
        ("environment.json", '{"data": []}', "data must be a JSON object, got []"),
        ("environment.json", '{"data": {"sha256": 3}}', "data.sha256 must be a valid string"),
        ("environment.json", '{"x": "\\ud800"}', "surrogates not allowed"),
    ],
)
def test_a_damaged_record_is_listed(tmp_path: Path, name: str, content: str, reason: str) -> None:
    write_run(tmp_path / "good")
    write_run(tmp_path / "bad")
    (tmp_path / "bad" / name).write_text(content)
    runs = collect(tmp_path)
    assert [run.name for run in runs] == ["good"]
    (damaged,) = runs.damaged
    assert damaged.name == "bad"
    assert reason in damaged.reason


@pytest.mark.parametrize("content", ["{", "[]", "7", "{}", ""])
def test_a_damaged_note_is_listed(tmp_path: Path, content: str) -> None:
    write_run(tmp_path / "run", complete=False)
    (tmp_path / "run" / "diverged.json").write_text(content)
    (damaged,) = collect(tmp_path).damaged
    assert "diverged.json" in damaged.reason
    assert "Or delete diverged.json to continue the run." in damaged.reason


def test_files_that_are_not_files(tmp_path: Path) -> None:
    for name in ("config.json", "metrics.jsonl", "summary.json", "environment.json"):
        write_run(tmp_path / f"no-{name}")
        (tmp_path / f"no-{name}" / name).unlink()
        (tmp_path / f"no-{name}" / name).mkdir()
    runs = collect(tmp_path)
    assert not runs
    assert len(runs.damaged) == 4


def test_metrics_without_settings_are_listed(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    (tmp_path / "run" / "config.json").unlink()
    (damaged,) = collect(tmp_path).damaged
    assert "has metrics.jsonl but no config.json" in damaged.reason


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    (damaged,) = collect(tmp_path).damaged
    assert "cannot be read: Permission denied" in damaged.reason


def test_no_runs(tmp_path: Path) -> None:
    assert collect(tmp_path) == collect() == []


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="nowhere does not exist. Name a folder"):
        collect(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidValue, match="file is not a folder. Name a folder"):
        collect(tmp_path / "file")


def test_a_search_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs may be many; folders without one are a sign of a wrong path."""
    monkeypatch.setattr(searching, "MOST_FOLDERS", 20)
    monkeypatch.setattr(searching, "PATIENCE", -1.0)
    for i in range(30):
        write_run(tmp_path / "runs" / f"{i}")
    notes: list[str] = []
    assert len(collect(tmp_path, note=notes.append)) == 30
    assert f"searching {tmp_path} for runs, 1 folders so far." in notes
    for i in range(20):
        (tmp_path / "others" / f"{i}").mkdir(parents=True)
    with pytest.raises(InvalidValue, match=r"is too large to search for runs: stopped in .*/oth"):
        collect(tmp_path)
    assert len(collect(tmp_path / "runs")) == 30
    monkeypatch.setattr(searching, "MOST_NAMES", 100)
    with pytest.raises(InvalidValue, match=r"Name the folder that contains the runs"):
        collect(tmp_path / "runs")


def test_a_whole_disk_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither all of it, nor what the system shows of itself as files."""
    monkeypatch.setattr(searching, "MOST_FOLDERS", 200)
    visited: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: visited.append(str(path)) or scandir(path))
    with pytest.raises(InvalidValue, match="^/ is too large to search for runs"):
        collect("/")
    # Runs that happen to be among the first folders of this disk do not count.
    assert len([path for path in visited if not Path(path, "config.json").exists()]) == 201
    assert not [path for path in visited if path.startswith(("/proc", "/sys", "/dev/"))]


def test_folders_in_folders(tmp_path: Path) -> None:
    """Deeper than Python may call itself."""
    (tmp_path / "/".join("d" * 300)).mkdir(parents=True)
    write_run(tmp_path / "run")
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 200)
    try:
        assert [run.name for run in collect(tmp_path)] == ["run"]
    finally:
        sys.setrecursionlimit(before)


def test_it_needs_no_torch(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from noisin.experiments.collection import collect\n"
        f"print(collect({str(tmp_path)!r})[0].best['best_valid'])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "70.0\n", run.stderr
