"""Times of a run: what it has used, how fast it is, when to save and when to tell."""

from __future__ import annotations

import time

from noisin.tasks.unit import Unit
from noisin.training.config import TrainConfig
from noisin.training.runtime.progress import Status

TELL = 0.1  # seconds between two reports


class Clock:
    """The time of a run over all its sessions.

    Args:
        train: the limits, and how often to save.
        seconds, tokens: what earlier sessions have used and done.
    """

    def __init__(self, train: TrainConfig, seconds: float, tokens: int) -> None:
        self.train = train
        self._before, self._tokens = seconds, tokens
        self._start = self._saved = self._told = time.monotonic()
        self._done: float | None = None

    @property
    def session(self) -> float:
        """Seconds since this session began."""
        return time.monotonic() - self._start

    @property
    def seconds(self) -> float:
        """Seconds of work in all sessions."""
        return self._before + self.session

    def speed(self, tokens: int) -> float:
        """Tokens a second in this session."""
        return (tokens - self._tokens) / max(self.session, 1e-9)

    def over(self, tokens: int) -> str | None:
        """The limit that is reached, of those that can be in the middle of an epoch.

        A run makes one step at least, so that there is something to measure.
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
        """A save is done."""
        self._saved = time.monotonic()

    def report_is_due(self) -> bool:
        """Whether it is time to tell how far the run is."""
        now = time.monotonic()
        due = now - self._told >= TELL
        if due:
            self._told = now
        return due

    def status(self, tokens: int, epoch: int, part: float, unit: Unit, nats: float) -> Status:
        """How far the run is: ``epoch`` are over, and ``part`` of the present one."""
        done = (epoch + part) / self.train.epochs
        if self.train.tokens is not None:
            done = max(done, tokens / self.train.tokens)
        if self.train.minutes is not None:
            done = max(done, self.seconds / (60 * self.train.minutes))
        if self._done is None:  # what earlier sessions did says nothing about this one's speed
            self._done = done
        progress = done - self._done
        left = self.session * (1 - done) / progress if progress > 0 else float("inf")
        return Status(
            epoch=epoch + 1,
            epochs=self.train.epochs,
            unit=unit,
            nats=nats,
            tokens_per_second=self.speed(tokens),
            done=min(1.0, done),
            seconds_left=left,
        )
