"""What is shown of a sweep: a table on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from noisin.cli import board
from noisin.cli.board import SweepBoard
from noisin.experiments.comparison import ComparisonRow
from noisin.experiments.sweep import Sweep
from noisin.experiments.sweep.definition import SweepPoint
from noisin.experiments.sweep.outcome import Outcome
from noisin.experiments.sweep.standing import Standing, SweepProgress, point_rows, write_rows
from noisin.tasks.unit import NATS_PER_STEP

OPEN = Outcome()


def complete(valid: float | None, best: int = 3, epochs: int = 5) -> Outcome:
    return Outcome(
        "complete", ComparisonRow("x", 1.0, valid, valid and valid - 1, best, epochs, 9.0)
    )


@pytest.fixture
def sweep() -> Sweep:
    points = [SweepPoint(name=name, settings={}) for name in ("[red]a", "b")]
    return Sweep(name="toy", points=points, seeds=[1, 2])


def standings(sweep: Sweep, *outcomes: Outcome) -> list[Standing]:
    return [Standing(task, (end,)) for task, end in zip(sweep.tasks, outcomes, strict=True)]


def shown(sweep: Sweep, *steps: Any, terminal: bool = False) -> str:
    console = Console(
        file=io.StringIO(), force_terminal=terminal, width=100, highlight=False, markup=False
    )
    with SweepBoard(sweep, console) as shows:
        for ends, statuses in steps:
            shows.show(standings(sweep, *ends), statuses)
        shows.say("something [b]else[/b]")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


RUNNING = {"run": "b-seed-1", "epochs": 8, "begun": 0.0}
RUNNING |= {"epoch": 2, "done": 0.5, "score": 99.5, "left": 75}
RUNNING |= {"unit": {"name": "perplexity", "per": "word"}}
STEPS: tuple[Any, ...] = (
    ([OPEN] * 4, [{"run": "[red]a-seed-1", "epochs": 8, "begun": 0.0}]),
    ([complete(80.0), OPEN, OPEN, OPEN], [RUNNING]),
    ([complete(80.0), complete(82.0), Outcome("diverged"), complete(None)], []),
)


def test_lines(sweep: Sweep) -> None:
    lines = shown(sweep, *STEPS).splitlines()
    assert lines[0].startswith("[red]a-seed-1  valid 80.0  test 79.0  (1/4 done, 1 running, ")
    assert lines[0].endswith("left, best so far [red]a 80.0)")
    assert [line.split("  ")[0] for line in lines[1:4]] == ["[red]a-seed-2", "b-seed-1", "b-seed-2"]
    assert "b-seed-1  diverged  (4/4 done, 1 diverged, 0 running, 0:00 left" in lines[2]
    assert "b-seed-2  valid inf  test inf" in lines[3]
    assert "best so far [red]a 81.0 ± 1.4" in lines[3]
    assert lines[4] == "noisin: something [b]else[/b]"


def test_what_was_over_before_is_not_told(sweep: Sweep) -> None:
    ends = [complete(80.0), OPEN, OPEN, OPEN]
    assert shown(sweep, (ends, []), (ends, [])).count("\n") == 1


def test_a_quiet_sweep_tells_now_and_then(sweep: Sweep, monkeypatch: Any) -> None:
    monkeypatch.setattr(board, "QUIET", 0.0)
    assert "0/4 done, 1 running, ? left" in shown(sweep, STEPS[0])


def test_a_terminal_has_a_table(sweep: Sweep) -> None:
    drawn = shown(sweep, *STEPS[:2], terminal=True)
    assert "running" in drawn
    assert "1/4 done, 1 running" in drawn
    for cell in ("perplexity", "b-seed-1", "2/8", "99.5", "1:15"):
        assert cell in drawn
    assert "[red]a-seed-1  valid 80.0" in drawn, "and the lines above it"


def test_the_time_left(monkeypatch: pytest.MonkeyPatch, sweep: Sweep) -> None:
    """At the speed of this session: what was done before says nothing about it."""
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    progress = SweepProgress(runs=4, runs_per_task=1)
    before = standings(sweep, complete(80.0), OPEN, OPEN, OPEN)
    assert progress.seconds_left(before, []) == math.inf
    now = 110.0
    fresh = {"run": "b-seed-1", "begun": 0.0, "done": 0.5}
    assert progress.seconds_left(before, [fresh]) == 50.0
    resumed = {"run": "c-seed-1", "begun": 0.25}
    assert progress.seconds_left(before, [fresh, resumed]) == 45.0, "it has done nothing yet"
    restarted = {"run": "b-seed-1", "begun": 0.5, "done": 0.5}
    assert progress.seconds_left(before, [restarted, resumed]) == 45.0, "a worker has died"
    ended = standings(sweep, complete(80.0), complete(80.0), complete(80.0), OPEN)
    assert progress.seconds_left(ended, []) == pytest.approx(10.0 / 1.75)
    ended = standings(sweep, *[complete(80.0)] * 4)
    assert progress.seconds_left(ended, []) == 0.0


def test_a_pruned_point_of_a_search_is_done_with_all_its_seeds(sweep: Sweep) -> None:
    ends = (Outcome("pruned"), OPEN)
    task = sweep.tasks[0]
    standing = Standing(type(task)("x", (task.runs[0], sweep.tasks[1].runs[0])), ends)
    assert standing.is_over
    assert SweepProgress(runs=2, runs_per_task=2).over([standing]) == 2
    assert not Standing(standing.task, (complete(3.0), OPEN)).is_over
    assert SweepProgress(runs=2, runs_per_task=2).over(
        [Standing(standing.task, (complete(3.0), OPEN))]
    )


def test_rows(sweep: Sweep, tmp_path: Path) -> None:
    ends = standings(sweep, complete(None), complete(82.0), complete(70.0, 5), Outcome("failed"))
    refused = Standing(None, (Outcome("failed", message="no"),))
    best, worst, nothing = point_rows([*ends, refused, Standing(None)])
    assert (best.point, best.failed, best.unfinished) == ("b", 1, 1)
    assert str(best.valid) == "70.0"
    assert worst.valid is not None
    assert worst.valid.mean == math.inf
    assert (nothing.point, nothing.valid, nothing.failed) == ("(refused)", None, 1)
    write_rows([best, worst, nothing], tmp_path / "rows.json")
    text = (tmp_path / "rows.json").read_text()
    assert "Infinity" not in text
    assert '"mean": 70.0' in text


def test_scores_in_nats(sweep: Sweep) -> None:
    """Negative ones too: the lowest is the best, and it has the digits of its unit."""
    ends = [
        Outcome("complete", ComparisonRow("x", None, valid, valid, 1, 2, 9.0, unit=NATS_PER_STEP))
        for valid in (0.0, -0.25, -1.5, -1.0)
    ]
    lines = shown(sweep, ([OPEN] * 4, []), (ends, [])).splitlines()
    assert lines[1].startswith("[red]a-seed-2  valid -0.250  test -0.250")
    assert "best so far b -1.250 ± 0.354" in lines[1]
    assert [row.unit for row in point_rows(standings(sweep, *ends))] == [NATS_PER_STEP] * 2
    running = RUNNING | {"score": -2.0, "unit": {"name": "nats", "per": "step"}}
    drawn = shown(sweep, (ends, [running]), terminal=True)
    assert "nats per step" in drawn
    assert "-2.000" in drawn
