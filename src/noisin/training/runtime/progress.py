"""The interface through which a run reports its progress."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from noisin.tasks.unit import Unit


@dataclass(frozen=True)
class Status:
    """The progress of a run.

    Attributes:
        epoch: the current epoch, counted from 1.
        epochs: the maximum number of epochs.
        unit, nats: the score on the training data of this epoch so far, with the noise on.
        tokens_per_second: the speed of this session.
        done: the fraction of the run that is done, by its limits.
        seconds_left: the estimated time until the limit; early stopping may end the run earlier.
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
        """A run starts or continues."""

    def status(self, status: Status) -> None:
        """Called several times per second with the current status."""

    def epoch(self, metrics: Mapping[str, Any], unit: Unit) -> None:
        """Called after an epoch with its line of ``metrics.jsonl`` and the unit of its scores."""

    def note(self, message: str) -> None:
        """Called with a message for the user."""

    def end(self) -> None:
        """The run has ended, for whatever reason."""


class Quiet:
    """Shows nothing; messages for the user are Python warnings."""

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
