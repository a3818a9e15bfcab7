"""``noisin table``: on standard output, without torch, and clear about what is wrong."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run import in_process, noisin
from tests.experiments.test_tables import write


def test_it_needs_no_torch(tmp_path: Path) -> None:
    write(tmp_path / "a")
    ran = noisin("table", "3", "--runs", str(tmp_path), code="sys.modules['torch'] = None")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "66.5" in ran.stdout


@pytest.mark.parametrize("form", ["text", "markdown", "latex"])
def test_formats(form: str, tmp_path: Path, capsys: Any) -> None:
    write(tmp_path / "a")
    assert in_process("table", "3", "--runs", str(tmp_path), "--format", form) == 0
    printed = capsys.readouterr()
    assert "66.5" in printed.out
    assert printed.err == ""


def test_your_own_runs(tmp_path: Path, capsys: Any) -> None:
    for seed in (1, 2):
        write(tmp_path / f"a-{seed}", seed=seed)
        write(tmp_path / f"b-{seed}", seed=seed, noise={"gamma": 0.7})
    assert in_process("table", "--runs", str(tmp_path), "--against", "gaussian gamma 0.7") == 0
    printed = capsys.readouterr()
    assert "Differences from: gaussian γ 0.7" in printed.out
    assert printed.err == ""
    assert in_process("table", "--runs", str(tmp_path), "--format", "csv") == 0
    printed = capsys.readouterr()
    assert len(list(csv.DictReader(io.StringIO(printed.out)))) == 2
    assert "noisin: difference: of test" in printed.err


def test_csv_is_alone_on_standard_output(tmp_path: Path, capsys: Any) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b", noise={"gamma": 0.7})
    assert in_process("table", "3", "--runs", str(tmp_path), "--format", "csv") == 0
    printed = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(printed.out)))
    assert len(rows) == 36
    assert {len(row) for row in rows} == {18}
    assert "noisin: b belongs to no cell" in printed.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table", "--runs", "/no/such"], "/no/such does not exist"),
        (["table", "--all", "--runs", "."], "--all is for tables of the paper"),
        (["table", "3", "--against", "x"], "--against is for your own runs"),
        (["table", "three"], "expected a whole number, got 'three'"),
        (["table", "2"], "Table 2 lists noises"),
        (["table", "7", "--runs", "/"], "The paper has no table 7"),
        (["table", "3", "--runs", "/no/such"], "/no/such does not exist"),
        (["table", "3", "--format", "html"], '"text", "markdown", "csv", "latex"'),
    ],
)
def test_bad_input(arguments: list[str], message: str, capsys: Any) -> None:
    assert in_process(*arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
