"""The command line: what it prints, its exit codes, and what it says to bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from noisin.analysis import claims, toys
from noisin.analysis.claims import noises
from noisin.analysis.rows import ClaimRow
from tests.cli.run import in_process, noisin
from tests.pairwise import PRODUCTS

GOOD = ClaimRow("good", "E[z] = h", "Sec. 3", 0.5, 1.0, "|t| < 5.8", True)
BAD = ClaimRow("bad", "R - R(det) > 0", "Sec. 4", -0.2, 0.01, "> 0", False)


@pytest.mark.skipif(not PRODUCTS, reason="tests/analysis draws as much: make stress runs it")
def test_verify_for_real(tmp_path: Path) -> None:
    """In a process of its own, with all samples."""
    picture = tmp_path / "curves.svg"
    run = noisin("verify", "--json", "--plot", str(picture), "--seed", "7")
    assert run.returncode == 0, run.stderr
    assert_verified(json.loads(run.stdout), 7)
    drawn = picture.read_text()
    assert drawn.count("<svg") == 1
    assert picture.stat().st_size > 10_000


@pytest.mark.long
def test_verify_with_one_of_the_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    picture = tmp_path / "curves.svg"
    monkeypatch.setattr(claims, "CLAIMS", (noises.noise_table,))
    with toys.effort(0.25):
        assert in_process("verify", "--json", "--plot", str(picture), "--seed", "7") == 0
    assert_verified(json.loads(capsys.readouterr().out), 7)
    assert picture.read_text().count("<svg") == 1
    assert picture.stat().st_size > 10_000


def assert_verified(record: dict[str, Any], seed: int) -> None:
    assert record["passed"] is True
    assert record["seed"] == seed
    assert record["false_alarm_rate"] < 1e-4
    assert {"id", "claim", "place", "measured", "stderr", "expected", "passed"} | {
        "corrects"
    } == set(record["rows"][0])


@pytest.mark.parametrize(("rows", "code"), [([GOOD], 0), ([GOOD, BAD], 1)])
def test_table_and_exit_code(
    rows: list[ClaimRow], code: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(claims, "verify", lambda *_: rows)
    assert in_process("verify") == code
    printed = capsys.readouterr().out
    assert "E[z] = h" in printed, "brackets are text, not markup"
    assert "0.5 ± 1" in printed
    assert "false alarm with probability below 1e-05" in " ".join(printed.split())
    assert ("FAILS" in printed) == ("1 fail: bad" in printed) == bool(code)
    assert in_process("verify", "--json") == code
    assert json.loads(capsys.readouterr().out)["passed"] == (code == 0)


@pytest.mark.parametrize("columns", [None, 160, 80])
def test_rows_that_correct_the_paper_are_marked(
    columns: int | None, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    rows = [GOOD, replace(GOOD, place="Sec. 3 (corrected)", claim="no such bound")]
    monkeypatch.setattr(claims, "verify", lambda *_: rows)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", str(columns))
    assert in_process("verify") == 0
    printed = capsys.readouterr().out
    marked = [line for line in printed.splitlines() if line.startswith("ok *")]
    assert ["no such bound" in line for line in marked] == [True]
    assert "* corrects the paper, which claims more than holds (1 of 2)." in printed
    assert in_process("verify", "--json") == 0
    told = json.loads(capsys.readouterr().out)["rows"]
    assert [row["corrects"] for row in told] == [False, True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verfy"], 'Did you mean "verify"'),
        (["verify", "--sead", "3"], "--sead"),
        (["verify", "--seed", "three"], "three"),
        (["verify", "--seed", "-1"], "got -1"),
        (["verify", "--seed", "1.5"], "1.5"),
        (["verify", "--seed", "²"], "whole number"),
        (["verify", "--seed", "99999999999999999999"], "below 4294967296"),
        (["verify", "--plot", "/proc/x.svg"], "cannot write /proc/x.svg"),
        (["verify", "--plot"], "--plot"),
        (["verify", "--plot", "curves.txt"], ".svg, .png or .pdf, got curves.txt"),
        (["verify", "--plot", "no/such/folder/x.svg"], "there is no folder no/such/folder"),
        (["verify", "extra"], "extra"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_bad_input(arguments: list[str], message: str, capsys: Any) -> None:
    assert in_process(*arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.startswith("noisin: ")
    assert "Traceback" not in printed.err
    assert printed.out == ""


def test_a_folder_for_a_picture(tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "x.svg"
    folder.mkdir()
    assert in_process("verify", "--plot", str(folder)) == 2
    assert "is a folder" in capsys.readouterr().err


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert in_process("verify", "--plot", "x.svg") == 2
    assert "pip install 'noisin[plot]'" in capsys.readouterr().err


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(claims, "verify", interrupted)
    assert in_process("verify") == 130
    assert "Traceback" not in capsys.readouterr().err
