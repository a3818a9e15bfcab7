"""The progress of a run: a bar on a terminal, plain lines elsewhere. On standard error."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from noisin.cli.consoles import Messages, note
from noisin.experiments.seeds import number
from noisin.tasks.unit import Unit
from noisin.training.runtime.progress import Status
from noisin.training.scores import in_unit

QUIET = 60.0  # seconds without a line, elsewhere than on a terminal


class Display:
    """Shows the progress that the trainer reports, of one run after another."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Messages()
        self._title = ""
        self._epochs = 0
        self._left = ""
        self._bar: tuple[Progress, TaskID] | None = None
        self._shown = time.monotonic()

    def begin(self, title: str) -> None:
        """A run starts or continues."""
        self._title, self._epochs, self._left = title, 0, ""
        if self.console.is_terminal:
            bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[shown]}", markup=False),
                console=self.console,
                transient=True,
            )
            self._bar = bar, bar.add_task(title, total=1.0, shown="")
            bar.start()

    def status(self, status: Status) -> None:
        """Show the current status."""
        self._epochs = status.epochs
        known = status.seconds_left < float("inf")
        self._left = f"{clock(status.seconds_left)} left" if known else ""
        score = status.unit.value(status.nats)
        shown = (
            f"epoch {status.epoch}/{status.epochs}  {labelled(score, status.unit)}  "
            f"{status.tokens_per_second:,.0f} {status.unit.targets}/s  {self._left}"
        )
        if self._bar:
            bar, task = self._bar
            bar.update(task, completed=status.done, shown=shown)
        elif time.monotonic() - self._shown > QUIET:
            self._say(shown.rstrip())

    def epoch(self, metrics: Mapping[str, Any], unit: Unit) -> None:
        """An epoch has ended."""
        recorded = {
            "train": metrics["train"],
            "noise off": metrics["train_clean"],
            "valid": metrics["valid"],
            "averaged": metrics["valid_averaged"],
        }
        values = {name: in_unit(score, unit) for name, score in recorded.items()}
        shown = "  ".join(
            f"{name} {number(value, unit)}" for name, value in values.items() if value is not None
        )
        limit = f"/{self._epochs}" if self._epochs else ""
        speed = f"{metrics['tokens_per_second']:,.0f} {unit.targets}/s"
        self._say(f"epoch {metrics['epoch']:>2}{limit}  {shown}  {speed}  {self._left}".rstrip())

    def note(self, message: str) -> None:
        """Show a message for the user."""
        note(self.console, message)

    def end(self) -> None:
        """The run has ended."""
        if self._bar:
            self._bar[0].stop()
            self._bar = None

    def _say(self, text: str) -> None:
        self.console.print(f"{self._title}  {text}", soft_wrap=True)
        self._shown = time.monotonic()


def labelled(score: float, unit: Unit) -> str:
    """A score with its unit.

    >>> labelled(82.12, Unit("perplexity", "word")), labelled(-1.5, Unit("nats", "step"))
    ('perplexity 82.1', '-1.500 nats per step')
    """
    shown = number(score, unit)
    return f"{unit} {shown}" if unit.name == "perplexity" else f"{shown} {unit}"


def clock(seconds: float) -> str:
    """A time as minutes and seconds, or hours.

    >>> clock(75), clock(3 * 3600 + 120), clock(float("inf"))
    ('1:15', '3:02:00', '?')
    """
    if seconds == float("inf"):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
