"""At 80 columns no line of a command is longer; paths, which are never broken, aside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noisin.analysis import claims
from noisin.analysis.rows import ClaimRow
from noisin.cli import train
from noisin.experiments import comparison
from noisin.training.record import RunRecord
from tests.cli.run import in_process
from tests.experiments.records import write_run
from tests.experiments.test_tables import write

COLUMNS = 80
LONG = "the same for Zaremba's: no special case of that form (largest)"
ROWS = [ClaimRow("a", LONG, "Strong unbiasedness, Sec. 3", 0.6224, 0.0067, "off by 0.05", True)]


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setattr(claims, "verify", lambda *_: ROWS)


def assert_fits(shown: str) -> None:
    assert shown.strip()
    long = [line for line in shown.splitlines() if len(line) > COLUMNS]
    assert [line for line in long if max(map(len, line.split())) < COLUMNS // 2] == []
    assert "…" not in shown


@pytest.mark.parametrize("command", [["table"], ["table", "3"], ["table", "5"]])
def test_tables(command: list[str], tmp_path: Path, capsys: Any) -> None:
    for seed in (1, 2):
        write(tmp_path / f"a-{seed}", seed=seed)
        write(tmp_path / f"b-{seed}", "ptb-medium-dropout-chi-square", seed=seed)
        write_run(tmp_path / f"c-{seed}", seed=seed, noise={"std": 0.35, "noisy_layers": "last"})
    assert in_process(*command, "--runs", str(tmp_path)) == 0
    assert_fits(capsys.readouterr().out)


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify"],
        ["data", "--list"],
        ["train", "--dry-run"],
        ["--help"],
        ["train", "--help"],
        ["table", "--help"],
    ],
)
def test_other_commands(arguments: list[str], capsys: Any) -> None:
    assert in_process(*arguments) == 0
    assert_fits(capsys.readouterr().out)


def test_the_result_of_a_run(run: Path, capsys: Any) -> None:
    train._print(comparison.rows([RunRecord(run)]))
    assert_fits(capsys.readouterr().out)
    assert in_process("evaluate", str(run), "--method", "arithmetic", "--samples", "3") == 0
    assert_fits(capsys.readouterr().out)
