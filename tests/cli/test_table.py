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


@pytest.mark.parametrize("number", ["3", "4", "5"])
def test_all_rows_of_the_paper_need_no_runs(
    number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert in_process("table", number, "--all") == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "There are no runs. To make one:" in printed.out
    assert ("A copied error" if number == "5" else "Of the paper:") in printed.out
    assert "have no run" not in printed.out
    assert in_process("table", number, "--all", "--format", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    ours = ("dev", "test", "seeds")
    assert {tuple(row[name] for name in ours) for row in rows} == {("", "", "0")}
    published = [row["paper_test"] for row in rows if row["table"] == number]
    assert len(published) == (11 if number == "5" else 36)
    assert all(published)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [["table"], ["table", "3"], ["table", "5"], ["table", "5", "--all", "--runs", "runs"]],
)
def test_a_folder_that_is_needed_or_named_must_be_there(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert in_process(*arguments) == 2
    assert "runs does not exist. Name a folder with runs" in capsys.readouterr().err


def test_all_rows_beside_the_runs_of_the_usual_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    write(tmp_path / "runs" / "a")
    monkeypatch.chdir(tmp_path)
    assert in_process("table", "3", "--all") == 0
    printed = capsys.readouterr().out
    assert "66.5" in printed
    assert "D + Chi" in printed


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
