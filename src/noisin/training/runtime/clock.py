"""The time of a run: its duration and speed, and when to save and to report."""

from __future__ import annotations

import time

from noisin.tasks.unit import Unit
from noisin.training.config import TrainConfig
from noisin.training.runtime.progress import Status

REPORT_EVERY = 0.1  # seconds


class Clock:
    """The time of a run over all its sessions.

    Args:
        train: the limits, and how often to save.
        seconds, tokens: the duration of earlier sessions, and the tokens that they processed.
    """

    def __init__(self, train: TrainConfig, seconds: float, tokens: int) -> None:
        self.train = train
        self._before, self._tokens = seconds, tokens
        self._start = self._saved = self._reported = time.monotonic()
        self._done: float | None = None

    @property
    def session(self) -> float:
        """Seconds since this session began."""
        return time.monotonic() - self._start

    @property
    def seconds(self) -> float:
        """Seconds in all sessions."""
        return self._before + self.session

    def speed(self, tokens: int) -> float:
        """Tokens per second in this session."""
        return (tokens - self._tokens) / max(self.session, 1e-9)

    def over(self, tokens: int) -> str | None:
        """The limit on tokens or minutes that is reached, if any.

        A run makes at least one step, so that there is something to measure.
        """
        if not tokens:
            return None
        if self.train.tokens is not None and tokens >= self.train.tokens:
            return "tokens"
        if self.train.minutes is not None and self.seconds >= 60 * self.train.minutes:
            return "minutes"
        return None

    def save_is_due(self, step: int) -> bool:
        """Whether it is time to save, by steps or by minutes."""
        if self.train.save_steps is not None and step % self.train.save_steps == 0:
            return True
        return time.monotonic() - self._saved >= 60 * self.train.save_minutes

    def saved(self) -> None:
        """Note that a checkpoint was saved."""
        self._saved = time.monotonic()

    def report_is_due(self) -> bool:
        """Whether it is time to report progress."""
        now = time.monotonic()
        due = now - self._reported >= REPORT_EVERY
        if due:
            self._reported = now
        return due

    def status(self, tokens: int, epoch: int, part: float, unit: Unit, nats: float) -> Status:
        """The progress after ``epoch`` epochs and a fraction ``part`` of the current one."""
        done = (epoch + part) / self.train.epochs
        if self.train.tokens is not None:
            done = max(done, tokens / self.train.tokens)
        if self.train.minutes is not None:
            done = max(done, self.seconds / (60 * self.train.minutes))
        done = min(1.0, done)
        if self._done is None:  # the speed of earlier sessions does not count
            self._done = done
        progress = done - self._done
        left = self.session * (1 - done) / progress if progress > 0 else float("inf")
        return Status(
            epoch=min(epoch + 1, self.train.epochs),
            epochs=self.train.epochs,
            unit=unit,
            nats=nats,
            tokens_per_second=self.speed(tokens),
            done=done,
            seconds_left=left,
        )
