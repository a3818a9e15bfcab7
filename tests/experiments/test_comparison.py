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
from noisin.experiments.records import read_run
from noisin.tasks.unit import NATS_PER_STEP, PERPLEXITY
from noisin.training import RunRecord
from tests.experiments.records import line, write_run


def write_record(
    folder: Path, valid: list[float | None], averages: list[float | None] | None = None
) -> RunRecord:
    """A complete record with these scores on valid, and those of averaged weights if given."""
    record = write_run(folder, valid, train={"averaging": "from_start" if averages else "none"})
    if averages is None:
        return record
    lines = [line(i + 1, v, valid_averaged=averages[i]) | {"train": v} for i, v in enumerate(valid)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in lines))
    best = {
        weights: lines[i] | {"weights": weights, "test": test, "train_clean": 30.0}
        for weights, i, test in (
            ("raw", valid.index(min(filter(None, valid))), 88.0),
            ("averaged", averages.index(min(filter(None, averages))), 99.0),
        )
    }
    # What the summary calls the best weights does not matter: the schedule decides.
    summary = {"best": best["raw"], "epochs": len(valid), "seconds": 61.0} | best
    (folder / "summary.json").write_text(json.dumps(summary))
    return record


def test_rows(tmp_path: Path) -> None:
    raw = write_record(tmp_path / "raw", [90.0, 70.0, 80.0])
    (row,) = comparison.rows([raw])
    assert row == ComparisonRow("raw", 35.0, 70.0, 66.5, best_epoch=2, epochs=3, seconds=61.0)
    assert row.gap == 35.0
    assert ComparisonRow("x", None, 1.0, 1.0, 1, 1, 1.0).gap is None
    assert ComparisonRow("x", 1.0, None, None, 1, 1, 1.0).gap is None


def test_rows_of_raw_and_averaged_weights(tmp_path: Path) -> None:
    record = write_record(tmp_path / "run", [90.0, 70.0, 80.0], [95.0, 69.0, 68.0])
    first, second = comparison.rows([record])
    assert (first.weights, first.valid, first.test, first.best_epoch) == ("raw", 70.0, 88.0, 2)
    assert (second.weights, second.valid, second.test, second.best_epoch) == (
        *("averaged", 68.0, 99.0),
        3,
    )
    assert (first.train, second.train) == (35.0, 30.0)
    assert (first.counts, second.counts) == (False, True)
    assert comparison.best_row(record) == second


def test_a_tie_goes_to_the_raw_weights(tmp_path: Path) -> None:
    record = write_record(tmp_path / "run", [90.0, 70.0], [95.0, 70.0])
    assert [row.counts for row in comparison.rows([record])] == [True, False]
    assert comparison.best_row(record).weights == "raw"


def test_rows_in_nats(tmp_path: Path) -> None:
    """A density may be negative, and infinite scores are null, not NaN or Infinity."""
    record = write_run(tmp_path / "density", (0.5, 0.0, -1.25, -1.0), unit=NATS_PER_STEP)
    (row,) = comparison.rows([record])
    assert (row.train, row.valid, row.test, row.gap) == (-3.25, -1.25, -1.75, 2.0)
    assert (row.best_epoch, row.unit, str(row.unit)) == (3, NATS_PER_STEP, "nats per step")
    infinite = write_run(tmp_path / "infinite", (None, 700.0), unit=NATS_PER_STEP)
    huge = write_run(tmp_path / "huge", (None, 710.0), unit=PERPLEXITY)
    rows = comparison.rows([infinite, huge])
    assert [row.valid for row in rows] == [700.0, None], "exp(710) is infinite, and no divergence"
    comparison.write_rows(rows, tmp_path / "rows.json")
    assert "Infinity" not in (tmp_path / "rows.json").read_text()


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
    for name, averages, best in (("raw", [99.0, 71.0], 70.0), ("averaged", [99.0, 69.0], 69.0)):
        record = write_record(tmp_path / name, [90.0, 70.0], averages)
        (axes,) = learning_curves.draw([read_run(record.folder)]).axes
        (mark,) = [line for line in axes.lines if line.get_marker() == "o"]
        assert mark.get_xydata().tolist() == [[2.0, best]]


def test_the_picture_of_a_density(tmp_path: Path) -> None:
    """Negative scores are drawn, on a linear axis, and infinite ones leave a hole."""
    record = write_run(tmp_path / "run", (1.0, 0.0, None, -1.5), unit=NATS_PER_STEP)
    (axes,) = learning_curves.draw([read_run(record.folder)]).axes
    assert (axes.get_ylabel(), axes.get_yscale()) == ("nats per step", "linear")
    valid = next(line for line in axes.lines if line.get_label() == "run")
    assert valid.get_xydata().tolist() == [[1.0, 1.0], [2.0, 0.0], [4.0, -1.5]]
    (mark,) = [line for line in axes.lines if line.get_marker() == "o"]
    assert mark.get_xydata().tolist() == [[4.0, -1.5]]


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
