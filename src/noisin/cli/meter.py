"""The progress of an evaluation: a bar on a terminal, a line a minute elsewhere."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.progress import Progress

from noisin.cli.consoles import Messages
from noisin.cli.progress import GAP, QUIET, SHORTEST_BAR, clock, fitted, new_bar


class Meter:
    """Shows how much of something that takes long is done, on standard error.

    Args:
        title: what is done.
        total: how much there is to do.
        per: the name of what is counted, in the plural.
    """

    def __init__(self, title: str, total: int, per: str, console: Console | None = None) -> None:
        self.title, self.total, self.per = title, max(1, total), per
        self.console = console or Messages()
        self._bar: Progress | None = None
        self._began = self._shown = time.monotonic()

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._bar = new_bar(self.console)
            self._bar.add_task(self.title, total=self.total, shown="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, text: str = "") -> None:
        """Show that so much is done, and a text."""
        seconds = max(time.monotonic() - self._began, 1e-9)
        left = clock(seconds * (self.total - done) / max(done, 1))
        speed = f"{done / seconds:,.0f} {self.per}/s"
        shown = f"{text}  {speed}  {left} left".strip()
        if self._bar is not None:
            room = self.console.width - SHORTEST_BAR - len(self.title) - 2 * len(GAP)
            shown = fitted([f"{left} left", text, speed], room, last=0)
            self._bar.update(self._bar.task_ids[0], completed=done, shown=shown)
        elif time.monotonic() - self._shown > QUIET:
            self._shown = time.monotonic()
            percent = f"{100 * done / self.total:.0f}%"
            self.console.print(f"{self.title}  {percent}  {shown}", soft_wrap=True)
