"""Where commands print: results to standard output, all else to standard error, as plain text."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from rich.console import Console


class Results(Console):
    """Standard output. A reader who has seen enough, such as head, is the caller's to notice."""

    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False, emoji=False)

    def on_broken_pipe(self) -> NoReturn:
        """Raise it: rich would end the process."""
        raise BrokenPipeError


class Messages(Console):
    """Standard error. Work goes on when nobody reads on."""

    def __init__(self) -> None:
        super().__init__(stderr=True, highlight=False, markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Say no more, neither here nor when the process ends."""
        self.quiet = True
        silence(sys.stderr.fileno())


def silence(descriptor: int) -> None:
    """Let what is still printed there go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
