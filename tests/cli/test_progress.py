"""Progress: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from rich.console import Console

from noisin.cli import progress
from noisin.cli.progress import Display
from noisin.tasks.unit import NATS_PER_STEP, PERPLEXITY
from noisin.training.runtime.progress import Status
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


def shown(terminal: bool, *, note: bool = False) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=140, highlight=False, markup=False)
    display = Display(console)
    display.begin("ptb [a]")
    display.status(STATUS)
    if display._bar is not None:
        display._bar[0].refresh()
    if note:
        display.note("take [care]")
    display.epoch(METRICS, PERPLEXITY)
    display.end()
    return file.getvalue()


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
    assert "epoch 3/12  perplexity 84.0  12,346 tokens/s  1:15 left" in told
    assert "valid 91.3" in told


def test_a_note() -> None:
    assert "noisin: take [care]\n" in shown(terminal=False, note=True)


def test_numbers_that_are_missing_or_large() -> None:
    metrics: dict[str, Any] = METRICS | {"train_clean": None, "valid": {"nats": 800.0, "count": 9}}
    file = io.StringIO()
    display = Display(Console(file=file, width=200))
    display.begin("x")
    display.epoch(metrics, PERPLEXITY)
    assert file.getvalue() == "x  epoch  3  train 85.1  valid inf  12,346 tokens/s\n"


def test_scores_in_nats() -> None:
    """Zero and negative ones too; what is infinite is not left out."""
    file = io.StringIO()
    display = Display(Console(file=file, width=200))
    display.begin("x")
    metrics = nats_line(3, 0.0, valid_averaged=score(None))
    display.epoch(metrics, NATS_PER_STEP)
    assert file.getvalue() == (
        "x  epoch  3  train -1.000  noise off -2.000  valid 0.000  averaged inf  500 steps/s\n"
    )


def test_the_status_names_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET", -1.0)
    file = io.StringIO()
    display = Display(Console(file=file, width=200))
    display.begin("x")
    display.status(Status(3, 12, NATS_PER_STEP, -1.25, 100.0, 0.25, 75.0))
    assert "epoch 3/12  -1.250 nats per step  100 steps/s" in file.getvalue()
