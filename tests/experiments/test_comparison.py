"""Rows and pictures from records alone, without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from noisin.errors import InvalidValue
from noisin.experiments import comparison
from noisin.experiments.comparison import ComparisonRow
from noisin.experiments.pictures import learning_curves
from noisin.training import RunRecord


def write_record(folder: Path, valid: list[float | None], weights: str = "raw") -> RunRecord:
    """A complete record as the trainer writes it, with these validation perplexities."""
    folder.mkdir(parents=True)
    lines = [
        {
            "epoch": i + 1,
            "train": v,
            "train_clean": v and v / 2,
            "valid": v,
            "valid_averaged": v and v - 1,
        }
        for i, v in enumerate(valid)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    known = [(v, i) for i, v in enumerate(valid) if v is not None]
    best = lines[min(known)[1]] | {"weights": weights, "test": 99.0}
    summary = {"best": best, "epochs": len(valid), "seconds": 61.0}
    (folder / "summary.json").write_text(json.dumps(summary))
    return RunRecord(folder)


def test_rows(tmp_path: Path) -> None:
    raw = write_record(tmp_path / "raw", [90.0, 70.0, 80.0])
    averaged = write_record(tmp_path / "averaged", [90.0, 70.0], weights="averaged")
    first, second = comparison.rows([raw, averaged])
    assert first == ComparisonRow("raw", 35.0, 70.0, 99.0, best_epoch=2, epochs=3, seconds=61.0)
    assert first.gap == 35.0
    assert (second.valid, second.weights, second.counts) == (69.0, "averaged", True)
    assert ComparisonRow("x", None, 1.0, 1.0, 1, 1, 1.0).gap is None
    assert ComparisonRow("x", 1.0, None, None, 1, 1, 1.0).gap is None


def test_rows_of_raw_and_averaged_weights(tmp_path: Path) -> None:
    record = write_record(tmp_path / "run", [90.0, 70.0, 80.0], weights="averaged")
    path = record.folder / "summary.json"
    summary = json.loads(path.read_text())
    raw = summary["best"] | {"epoch": 1, "valid": 90.0, "weights": "raw", "test": 88.0}
    path.write_text(json.dumps(summary | {"raw": raw, "averaged": summary["best"]}))
    first, second = comparison.rows([record])
    assert (first.weights, first.valid, first.test, first.best_epoch) == ("raw", 90.0, 88.0, 1)
    assert (second.weights, second.valid, second.test, second.best_epoch) == (
        *("averaged", 69.0, 99.0),
        2,
    )
    assert (first.counts, second.counts) == (False, True)
    assert comparison.best_row(record) == second


def test_an_incomplete_run(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="is not complete"):
        comparison.rows([RunRecord(tmp_path)])


def test_rows_are_kept(tmp_path: Path) -> None:
    table = comparison.rows([write_record(tmp_path / "a", [90.0, 70.0])])
    comparison.write_rows(table, tmp_path / "rows.json")
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert row["gap"] == 35.0
    assert row["run"] == "a"


def test_the_picture(tmp_path: Path) -> None:
    """Every run has its name in it; an epoch that was infinite leaves a hole."""
    records = [
        write_record(tmp_path / "no-noise", [90.0, 70.0, 80.0]),
        write_record(tmp_path / "noise", [None, 95.0, 71.0]),
    ]
    learning_curves.learning_curves(records, tmp_path / "a.svg", tmp_path / "a.png")
    drawn = (tmp_path / "a.svg").read_text()
    assert "no-noise" in drawn
    assert "train, noise off" in drawn
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_best_epoch_is_marked_on_the_line_of_the_weights_that_count(tmp_path: Path) -> None:
    for weights in ("raw", "averaged"):
        record = write_record(tmp_path / weights / "run", [90.0, 70.0], weights)
        learning_curves.learning_curves([record], tmp_path / f"{weights}.png")
    assert (tmp_path / "raw.png").read_bytes() != (tmp_path / "averaged.png").read_bytes()


def test_a_name_is_no_formula(tmp_path: Path) -> None:
    record = write_record(tmp_path / r"a$\nothing$ [b]", [90.0, 70.0])
    learning_curves.learning_curves([record], tmp_path / "a.svg", tmp_path / "a.png")
    assert r"a$\nothing$ [b]" in (tmp_path / "a.svg").read_text().replace(r"\$", "$")


def test_the_picture_is_the_same_each_time(tmp_path: Path) -> None:
    record = write_record(tmp_path / "run", [90.0, 70.0, 80.0])
    for name in ("a.png", "b.png"):
        learning_curves.learning_curves([record], tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_it_needs_no_torch(tmp_path: Path) -> None:
    write_record(tmp_path / "run", [90.0, 70.0])
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from noisin.experiments import comparison, presets\n"
        "from noisin.experiments.pictures import learning_curves\n"
        "from noisin.training.record import RunRecord\n"
        f"record = RunRecord({str(tmp_path / 'run')!r})\n"
        "print(comparison.rows([record])[0].valid)\n"
        f"learning_curves.learning_curves([record], Path({str(tmp_path / 'x.svg')!r}))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "70.0\n"
