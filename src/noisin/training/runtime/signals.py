"""Ctrl-C and SIGTERM: the first asks the run to save and stop, a second one stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CAUGHT = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop. It has saved, and goes on when it is started again.

    As a KeyboardInterrupt it passes by every ``except Exception``.

    Attributes:
        exit_code: what a program that ends so should return: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + signum


class Flag:
    """The signal that was caught, or None."""

    signum: int | None = None


@contextmanager
def caught() -> Iterator[Flag]:
    """SweepLock the first signal into a flag. The second does what it would have done without us.

    What the system was told to ignore stays ignored (``nohup``, shells that start a job in the
    background), and outside the main thread, where Python has no signals, nothing is caught.
    """
    flag = Flag()
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
    try:
        yield flag
    finally:
        restore()
