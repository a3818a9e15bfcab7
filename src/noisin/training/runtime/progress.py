"""What a run tells while it goes on, to whoever shows it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from noisin.tasks.unit import Unit


@dataclass(frozen=True)
class Status:
    """How far a run is.

    Attributes:
        epoch: the epoch at work, counted from 1.
        epochs: the most there can be.
        unit, nats: the score on the training data of this epoch so far, with the noise on.
        tokens_per_second: of this session.
        done: the share of the run's limit that is used up, between 0 and 1.
        seconds_left: until then, at this speed; early stopping may end it before.
    """

    epoch: int
    epochs: int
    unit: Unit
    nats: float
    tokens_per_second: float
    done: float
    seconds_left: float


class Progress(Protocol):
    """Shows a run. The trainer prints nothing itself."""

    def begin(self, title: str) -> None:
        """A run starts or goes on."""

    def status(self, status: Status) -> None:
        """It is so far now; several times a second."""

    def epoch(self, metrics: Mapping[str, Any], unit: Unit) -> None:
        """An epoch is over; the line of ``metrics.jsonl`` is given, and the unit to show it in."""

    def note(self, message: str) -> None:
        """Something that the user should know."""

    def end(self) -> None:
        """The run is over, by whatever reason."""


class Quiet:
    """Shows nothing; what the user should know is a Python warning."""

    def begin(self, title: str) -> None:
        """Nothing."""

    def status(self, status: Status) -> None:
        """Nothing."""

    def epoch(self, metrics: Mapping[str, Any], unit: Unit) -> None:
        """Nothing."""

    def note(self, message: str) -> None:
        """A warning."""
        warnings.warn(message, stacklevel=3)

    def end(self) -> None:
        """Nothing."""
