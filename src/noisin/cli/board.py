"""How a sweep stands: a live table on a terminal, plain lines elsewhere. On standard error."""

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


class SweepBoard:
    """Shows a sweep: done, running, time left, best so far."""

    def __init__(self, sweep: Sweep, console: Console | None = None) -> None:
        self.console = console or Messages()
        self.total = sweep.count * sweep.runs_per_task
        self.progress = SweepProgress(self.total, sweep.runs_per_task)
        self.live: Live | None = None
        self._known: set[str] | None = None
        self._told = time.monotonic()

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
        """Something that the user should know."""
        note(self.console, message)

    def show(self, standings: Sequence[Standing], statuses: Sequence[Mapping[str, Any]]) -> None:
        """How all stands now."""
        if not standings:
            return
        line = self.summary(standings, statuses)
        self._tell_what_is_new(standings, line)
        if self.live is not None:
            self.live.update(Group(Text(line), _running(statuses)), refresh=True)
        elif time.monotonic() - self._told > QUIET:
            self._print(line)

    def summary(self, standings: Sequence[Standing], statuses: Sequence[Mapping[str, Any]]) -> str:
        """One line: done, running, time left, best so far."""
        left = self.progress.seconds_left(standings, statuses)
        ends = Counter(end.state for standing in standings for end in standing.outcomes)
        told = [f"{self.progress.over(standings)}/{self.total} done"]
        told += [f"{ends[state]} {state}" for state in ENDS if ends[state]]
        told += [f"{len(statuses)} running", f"{clock(left)} left"]
        best = next((row for row in point_rows(standings) if row.valid is not None), None)
        if best is not None:
            told.append(f"best so far {best.point} {best.valid}")
        return ", ".join(told)

    def _tell_what_is_new(self, standings: Sequence[Standing], line: str) -> None:
        """A line for each run that has ended since."""
        ended = {
            run.name: end
            for standing in standings
            for run, end in standing.runs
            if end.state != "open"
        }
        if self._known is not None:
            for name in sorted(ended.keys() - self._known):
                self._print(f"{name}  {_ended(ended[name])}  ({line})")
        self._known = set(ended)

    def _print(self, told: str) -> None:
        self.console.print(told, soft_wrap=True)
        self._told = time.monotonic()


def _ended(end: Outcome) -> str:
    if end.row is None:
        return end.state
    values = {"valid": end.row.valid, "test": end.row.test}
    return "  ".join(f"{name} {'inf' if v is None else number(v)}" for name, v in values.items())


def _running(statuses: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("running", "epoch", "perplexity", "left", box=None, pad_edge=False)
    for status in statuses:
        epoch, left = status.get("epoch"), status.get("left")
        perplexity = status.get("perplexity")
        table.add_row(
            Text(str(status.get("run", ""))),
            f"{epoch}/{status.get('epochs')}" if epoch else "",
            "" if perplexity is None else number(perplexity),
            "?" if left is None else clock(left),
        )
    return table
