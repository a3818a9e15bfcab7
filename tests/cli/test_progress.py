"""Progress: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from noisin.cli import progress
from noisin.cli.progress import Display
from noisin.tasks.unit import NATS_PER_STEP, PERPLEXITY
from noisin.training.config import RunConfig
from noisin.training.runtime.progress import RunOutline, Status
from tests.experiments.records import nats_line, score

METRICS = {
    "epoch": 3,
    "train": {"nats": math.log(85.12), "count": 9},
    "train_clean": {"nats": math.log(70.0), "count": 9},
    "valid": {"nats": math.log(91.26), "count": 9},
    "valid_averaged": None,
    "tokens_per_second": 12345.6,
}
STATUS = Status(3, 12, PERPLEXITY, math.log(84.03), 12345.6, 0.25, 75.0)


OUTLINE = RunOutline(
    Path("runs/ptb [a]"),
    RunConfig.parse({"noise": {"gamma": 0.5}, "train": {"epochs": 12}}),
    parameters=13_262_000,
    device="cpu",
    threads=2,
)
HEADER = (
    "ptb [a]: manual, LSTM 2×650, gaussian γ 0.5; 13,262,000 parameters; cpu, 2 threads; 12 epochs"
)


def shown(terminal: bool, *, note: bool = False, width: int = 140) -> str:
    """Without the escape sequences of a terminal, and without the header."""
    file = io.StringIO()
    console = Console(
        file=file, force_terminal=terminal, width=width, highlight=False, markup=False
    )
    display = Display(console)
    display.begin(OUTLINE)
    display.status(STATUS)
    if display._bar is not None:
        display._bar[0].refresh()
    if note:
        display.note("take [care]")
    display.epoch(METRICS, PERPLEXITY)
    display.end()
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    head, _, rest = text.partition("12 epochs\n")
    assert " ".join(f"{head}12 epochs".split()) == HEADER
    return rest


def display(runs: int = 1) -> tuple[Display, io.StringIO]:
    file = io.StringIO()
    found = Display(Console(file=file, width=200), runs)
    found.begin(replace(OUTLINE, folder=Path("x")))
    file.truncate(0)
    file.seek(0)
    return found, file


def test_plain_lines() -> None:
    assert shown(terminal=False) == (
        "ptb [a]  epoch  3/12  train 85.1  noise off 70.0  valid 91.3  12,346 tokens/s  1:15 left\n"
    )


def test_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET", -1.0)
    told = "ptb [a]  epoch 3/12  perplexity 84.0  12,346 tokens/s  1:15 left\n"
    assert shown(terminal=False).startswith(told)


def test_a_bar_on_a_terminal() -> None:
    told = shown(terminal=True)
    assert "━" in told
    assert "epoch 3/12 ━" in told
    assert "perplexity 84.0  12,346 tokens/s  1:15 left" in told
    assert "valid 91.3" in told


def test_a_note() -> None:
    assert "noisin: take [care]\n" in shown(terminal=False, note=True)


def test_numbers_that_are_missing_or_large() -> None:
    metrics: dict[str, Any] = METRICS | {"train_clean": None, "valid": {"nats": 800.0, "count": 9}}
    shown, file = display()
    shown.epoch(metrics, PERPLEXITY)
    assert file.getvalue() == "x  epoch  3/12  train 85.1  valid inf  12,346 tokens/s\n"


def test_scores_in_nats() -> None:
    """Zero and negative ones too; what is infinite is not left out."""
    shown, file = display()
    metrics = nats_line(3, 0.0, valid_averaged=score(None))
    shown.epoch(metrics, NATS_PER_STEP)
    assert file.getvalue() == (
        "x  epoch  3/12  train -1.000  noise off -2.000  valid 0.000  averaged inf  500 steps/s\n"
    )


def test_the_status_names_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET", -1.0)
    shown, file = display()
    shown.status(Status(3, 12, NATS_PER_STEP, -1.25, 100.0, 0.25, 75.0))
    assert "epoch 3/12  -1.250 nats per step  100 steps/s" in file.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    told = shown(terminal=True, width=width)
    lines = [line for text in told.split("\r") for line in text.split("\n")]
    assert max(map(len, lines)) <= width
    assert "1:15 left" in told, "the most important comes last to be left out"
    assert "valid 91.3" in told or width < 60


def test_the_split_that_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET", -1.0)
    shown, file = display()
    shown.status(replace(STATUS, scoring="valid"))
    assert file.getvalue() == "x  epoch 3/12  scoring valid  1:15 left\n"


def test_the_time_of_several_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three, the first took 40 s from its half on, and the second is at a quarter 20 s later."""
    monkeypatch.setattr(progress, "QUIET", -1.0)
    now = 1000.0
    monkeypatch.setattr("noisin.cli.progress.time.monotonic", lambda: now)
    shown, file = display(runs=3)
    shown.status(replace(STATUS, done=0.5, seconds_left=40.0))
    now += 40.0
    shown.status(replace(STATUS, done=1.0, seconds_left=0.0))
    shown.begin(OUTLINE)
    now += 20.0
    shown.status(replace(STATUS, done=0.25, seconds_left=60.0))
    last = file.getvalue().splitlines()[-1]
    assert last.endswith("1:00 left, 2:20 for all 3"), "60 s for 0.75 runs, 1.75 are left"
