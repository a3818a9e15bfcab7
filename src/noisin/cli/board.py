"""The state of a sweep: a live table on a terminal, plain lines elsewhere. On standard error."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from noisin.cli.consoles import Messages, note
from noisin.cli.progress import QUIET, clock
from noisin.experiments.seeds import number
from noisin.experiments.sweep.definition import Sweep
from noisin.experiments.sweep.outcome import ENDS, Outcome
from noisin.experiments.sweep.standing import Standing, SweepProgress, point_rows
from noisin.tasks.unit import Unit, common


class SweepBoard:
    """Shows a sweep: done, running, time left, best so far."""

    def __init__(self, sweep: Sweep, console: Console | None = None) -> None:
        self.console = console or Messages()
        self.total = sweep.count * sweep.runs_per_task
        self.progress = SweepProgress(self.total, sweep.runs_per_task)
        self.live: Live | None = None
        self._known: set[str] | None = None
        self._printed = time.monotonic()

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live = Live(console=self.console, transient=True, auto_refresh=False)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None

    def say(self, message: str) -> None:
        """Show a message for the user."""
        note(self.console, message)

    def show(self, standings: Sequence[Standing], statuses: Sequence[Mapping[str, Any]]) -> None:
        """Show the current state."""
        if not standings:
            return
        line = self.summary(standings, statuses)
        self._print_ended(standings, line)
        if self.live is not None:
            self.live.update(Group(Text(line), _running(statuses)), refresh=True)
        elif time.monotonic() - self._printed > QUIET:
            self._print(line)

    def summary(self, standings: Sequence[Standing], statuses: Sequence[Mapping[str, Any]]) -> str:
        """One line: done, running, time left, best so far."""
        left = self.progress.seconds_left(standings, statuses)
        ends = Counter(end.state for standing in standings for end in standing.outcomes)
        parts = [f"{self.progress.over(standings)}/{self.total} done"]
        parts += [f"{ends[state]} {state}" for state in ENDS if ends[state]]
        parts += [f"{len(statuses)} running", f"{clock(left)} left"]
        best = next((row for row in point_rows(standings) if row.valid is not None), None)
        if best is not None:
            parts.append(f"best so far {best.point} {best.shown(best.valid)}")
        return ", ".join(parts)

    def _print_ended(self, standings: Sequence[Standing], line: str) -> None:
        """A line for each run that has ended since the last call."""
        ended = {
            run.name: end
            for standing in standings
            for run, end in standing.runs
            if end.state != "open"
        }
        if self._known is not None:
            for name in sorted(ended.keys() - self._known):
                state = "" if self.live is not None else f"  ({line})"  # which is shown below
                self._print(f"{name}  {_ended(ended[name])}{state}")
        self._known = set(ended)

    def _print(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)
        self._printed = time.monotonic()


def _ended(end: Outcome) -> str:
    if end.row is None:
        return end.state
    unit, values = end.row.unit, {"valid": end.row.valid, "test": end.row.test}
    shown = {name: "inf" if v is None else number(v, unit) for name, v in values.items()}
    return "  ".join(f"{name} {value}" for name, value in shown.items())


def _running(statuses: Sequence[Mapping[str, Any]]) -> Table:
    units = [_unit(status) for status in statuses]
    heading = common(unit for unit in units if unit is not None)
    table = Table("running", "epoch", heading, "left", box=None, pad_edge=False)
    for status, unit in zip(statuses, units, strict=True):
        epoch, left, score = status.get("epoch"), status.get("left"), status.get("score")
        table.add_row(
            Text(str(status.get("run", ""))),
            f"{epoch}/{status.get('epochs')}" if epoch else "",
            "" if score is None or unit is None else number(score, unit),
            "?" if left is None else clock(left),
        )
    return table


def _unit(status: Mapping[str, Any]) -> Unit | None:
    """The unit of the score of an active run; None before its first status."""
    return Unit(**status["unit"]) if "unit" in status else None
