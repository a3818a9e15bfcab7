"""The progress of a run: a bar on a terminal, plain lines elsewhere. On standard error."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from noisin.cli.consoles import Messages, note, wrapped
from noisin.experiments import words
from noisin.experiments.seeds import number
from noisin.tasks.unit import Unit
from noisin.training.runtime.progress import RunOutline, Status
from noisin.training.scores import in_unit

QUIET = 60.0  # seconds without a line, elsewhere than on a terminal
SHORTEST_BAR = 12  # columns
GAP = "  "


class Display:
    """Shows the progress that the trainer reports, of one run after another.

    Args:
        console: where to show it.
        runs: how many runs there will be, for the time until all of them are complete.
    """

    def __init__(self, console: Console | None = None, runs: int = 1) -> None:
        self.console = console or Messages()
        self.job = JobTime(runs)
        self._title = ""
        self._epochs = 0
        self._left = ""
        self._bar: tuple[Progress, TaskID] | None = None
        self._shown = time.monotonic()

    def begin(self, outline: RunOutline) -> None:
        """A run starts or continues: a header says what it is."""
        self._title, self._epochs, self._left = outline.title, outline.config.train.epochs, ""
        self.job.begin()
        terminal = self.console.is_terminal
        columns = self.console.width if terminal else None
        self.console.print(wrapped(header(outline), columns), soft_wrap=True)
        if terminal:
            bar = new_bar(self.console)
            self._bar = bar, bar.add_task("", total=1.0, shown="")
            bar.start()

    def status(self, status: Status) -> None:
        """Show the current status."""
        self._epochs = status.epochs
        self._left = self.job.left(status)
        score = labelled(status.unit.value(status.nats), status.unit)
        speed = f"{status.tokens_per_second:,.0f} {status.unit.targets}/s"
        split = (status.scoring or "").removesuffix("_clean")  # which is what the others are, too
        doing = [f"scoring {split}"] if split else [score, speed]
        epoch = f"epoch {status.epoch}/{status.epochs}"
        if self._bar:
            bar, task = self._bar
            room = self.console.width - SHORTEST_BAR - len(epoch) - 2 * len(GAP)
            shown = fitted([self._left, *doing], room, last=0)
            bar.update(task, description=epoch, completed=status.done, shown=shown)
        elif time.monotonic() - self._shown > QUIET:
            self._say([self._title, epoch, *doing, self._left])

    def epoch(self, metrics: Mapping[str, Any], unit: Unit) -> None:
        """An epoch has ended."""
        recorded = {
            "train": metrics["train"],
            "noise off": metrics["train_clean"],
            "valid": metrics["valid"],
            "averaged": metrics["valid_averaged"],
        }
        values = {name: in_unit(score, unit) for name, score in recorded.items()}
        scores = [
            f"{name} {number(value, unit)}" for name, value in values.items() if value is not None
        ]
        limit = f"/{self._epochs}" if self._epochs else ""
        epoch = f"epoch {metrics['epoch']:>2}{limit}"
        speed = f"{metrics['tokens_per_second']:,.0f} {unit.targets}/s"
        if self.console.is_terminal:  # the bar shows the rest
            self._say([fitted([epoch, *scores, speed], self.console.width)])
        else:
            self._say([self._title, epoch, *scores, speed, self._left])

    def note(self, message: str) -> None:
        """Show a message for the user."""
        note(self.console, message)

    def end(self) -> None:
        """The run has ended."""
        if self._bar:
            self._bar[0].stop()
            self._bar = None

    def _say(self, parts: Sequence[str]) -> None:
        self.console.print(GAP.join(part for part in parts if part), soft_wrap=True)
        self._shown = time.monotonic()


class JobTime:
    """The time that several runs of about the same length take, at the speed of this session."""

    def __init__(self, runs: int) -> None:
        self.runs = runs
        self._begun = 0
        self._start: tuple[float, float] | None = None  # when, and how much was done then

    def begin(self) -> None:
        """A run starts."""
        self._begun += 1

    def left(self, status: Status) -> str:
        """The time until the end of the run, and of all; empty while it is not known."""
        now, done = time.monotonic(), self._begun - 1 + status.done
        if self._start is None:
            self._start = now, done
        if status.seconds_left == float("inf"):
            return ""
        shown = f"{clock(status.seconds_left)} left"
        since, before = self._start
        if self.runs == 1 or done <= before:
            return shown
        rest = max((now - since) * (self.runs - done) / (done - before), status.seconds_left)
        return f"{shown}, {clock(rest)} for all {self.runs}"


def header(outline: RunOutline) -> str:
    """What a run is, in a line: data, model, regularizers, size, device, threads, epochs."""
    config, threads = outline.config, outline.threads
    begun = f", continued after {outline.done}" if outline.done else ""
    return (
        f"{outline.title}: {words.task(config)}, {words.points([config])[0]}; "
        f"{outline.parameters:,} parameters; {outline.device}, {threads} "
        f"thread{'' if threads == 1 else 's'}; {config.train.epochs} epochs{begun}"
    )


def new_bar(console: Console) -> Progress:
    """A bar between a description and a text, as wide as there is room."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[shown]}", markup=False),
        console=console,
        transient=True,
        expand=True,
    )


def fitted(parts: Sequence[str], width: int, last: int | None = None) -> str:
    """As many of the first parts as fit; the part numbered ``last`` is shown after the others.

    >>> fitted(["epoch 3", "valid 91.3", "12,346 tokens/s"], 20)
    'epoch 3  valid 91.3'
    >>> fitted(["1:15 left", "perplexity 84.0"], 80, last=0)
    'perplexity 84.0  1:15 left'
    """
    chosen = [part for part in parts if part]
    while len(chosen) > 1 and len(GAP.join(chosen)) > width:
        chosen.pop()
    if last is not None and parts[last] in chosen:
        chosen.remove(parts[last])
        chosen.append(parts[last])
    return GAP.join(chosen)


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
