"""How far a run is: a bar on a terminal, plain lines elsewhere. On standard error."""

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

QUIET = 60.0  # seconds without a line, elsewhere than on a terminal


class Display:
    """Shows runs, one after another, as the trainer tells of them."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Messages()
        self._title = ""
        self._epochs = 0
        self._left = ""
        self._bar: tuple[Progress, TaskID] | None = None
        self._told = time.monotonic()

    def begin(self, title: str) -> None:
        """A run starts or goes on."""
        self._title, self._epochs, self._left = title, 0, ""
        if self.console.is_terminal:
            bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[told]}", markup=False),
                console=self.console,
                transient=True,
            )
            self._bar = bar, bar.add_task(title, total=1.0, told="")
            bar.start()

    def status(self, status: Status) -> None:
        """It is so far now."""
        self._epochs = status.epochs
        known = status.seconds_left < float("inf")
        self._left = f"{clock(status.seconds_left)} left" if known else ""
        score = f"{status.unit.name} {status.unit.value(status.nats):.1f}"
        told = (
            f"epoch {status.epoch}/{status.epochs}  {score}  "
            f"{status.tokens_per_second:,.0f} tokens/s  {self._left}"
        )
        if self._bar:
            bar, task = self._bar
            bar.update(task, completed=status.done, told=told)
        elif time.monotonic() - self._told > QUIET:
            self._say(told.rstrip())

    def epoch(self, metrics: Mapping[str, Any], unit: Unit) -> None:
        """An epoch is over."""
        values = {
            "train": metrics["train"],
            "noise off": metrics["train_clean"],
            "valid": metrics["valid"],
            "averaged": metrics["valid_averaged"],
        }
        told = "  ".join(
            f"{name} {number(unit.value(score['nats']))}"
            for name, score in values.items()
            if score is not None
        )
        limit = f"/{self._epochs}" if self._epochs else ""
        speed = f"{metrics['tokens_per_second']:,.0f} tokens/s"
        self._say(f"epoch {metrics['epoch']:>2}{limit}  {told}  {speed}  {self._left}".rstrip())

    def note(self, message: str) -> None:
        """Something that the user should know."""
        note(self.console, message)

    def end(self) -> None:
        """The run is over."""
        if self._bar:
            self._bar[0].stop()
            self._bar = None

    def _say(self, told: str) -> None:
        self.console.print(f"{self._title}  {told}", soft_wrap=True)
        self._told = time.monotonic()


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
