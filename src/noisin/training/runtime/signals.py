"""Ctrl-C and SIGTERM: the first asks the run to save and stop, a second one stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

CAUGHT = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop. It has saved, and continues when it is started again.

    As a KeyboardInterrupt it passes by every ``except Exception``.

    Attributes:
        exit_code: what a program that ends so should return: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + signum


class Flag:
    """The signal that was caught, or None.

    Args:
        outer: the flag of the code around, which hears of the signal when this one is done.
    """

    def __init__(self, outer: Flag | None = None) -> None:
        self.signum: int | None = None
        self.outer = outer

    def done(self) -> None:
        """Pass a signal on: one that came after the last look here is for the code around."""
        if self.outer is not None and self.signum is not None:
            self.outer.signum = self.signum


_innermost: ContextVar[Flag | None] = ContextVar("noisin_signal_flag", default=None)


@contextmanager
def caught() -> Iterator[Flag]:
    """Turn the first signal into a flag. The second does what it would have done without us.

    What the system was told to ignore stays ignored (``nohup``, shells that start a job in the
    background), and outside the main thread, where Python has no signals, nothing is caught.
    """
    flag = Flag(_innermost.get())
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return
    before = {
        number: handler
        for number in CAUGHT
        if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)
    }

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(signum: int, _: FrameType | None) -> None:
        flag.signum = signum
        restore()

    for number in before:
        signal.signal(number, note)
    token = _innermost.set(flag)
    try:
        yield flag
    finally:
        _innermost.reset(token)
        restore()
        flag.done()
