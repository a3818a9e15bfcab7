"""Ctrl-C and SIGTERM: the first signal saves and stops the run, a second one stops it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

CAUGHT = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A signal stopped the run. It is saved, and continues when it is started again.

    It is a KeyboardInterrupt, so that ``except Exception`` does not catch it.

    Attributes:
        exit_code: the exit code for the program: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + signum


class Flag:
    """The signal that was caught, or None.

    Args:
        outer: the flag of the enclosing context, which receives the signal on exit.
    """

    def __init__(self, outer: Flag | None = None) -> None:
        self.signum: int | None = None
        self.outer = outer

    def done(self) -> None:
        """Pass the signal to the enclosing context, in case it arrived after the last poll here."""
        if self.outer is not None and self.signum is not None:
            self.outer.signum = self.signum


_innermost: ContextVar[Flag | None] = ContextVar("noisin_signal_flag", default=None)


@contextmanager
def caught() -> Iterator[Flag]:
    """Set a flag on the first signal. The second one has its original effect.

    Ignored signals stay ignored (``nohup``, background jobs of a shell). Outside the main thread,
    where Python does not deliver signals, nothing is caught.
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
