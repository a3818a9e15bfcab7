"""The interface through which a run reports its progress."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from noisin.tasks.unit import Unit
from noisin.training.config import RunConfig


@dataclass(frozen=True)
class RunOutline:
    """What a run is, known when it starts or continues.

    Attributes:
        folder: its folder.
        config: its settings.
        parameters: the number of parameters of the model.
        device, threads: what computes it.
        done: the number of epochs that are complete.
    """

    folder: Path
    config: RunConfig
    parameters: int
    device: str
    threads: int
    done: int = 0

    @property
    def title(self) -> str:
        """The name of the folder."""
        return self.folder.name


@dataclass(frozen=True)
class Status:
    """The progress of a run.

    Attributes:
        epoch: the current epoch, counted from 1.
        epochs: the maximum number of epochs.
        unit, nats: the score on the training data of this epoch so far, with the noise on; or
            that of the split that is being scored, so far.
        tokens_per_second: the speed of this session.
        done: the fraction of the run that is done, by its limits.
        seconds_left: the estimated time until the limit; early stopping may end the run earlier.
        scoring: the split that is being scored after an epoch, or None while training.
    """

    epoch: int
    epochs: int
    unit: Unit
    nats: float
    tokens_per_second: float
    done: float
    seconds_left: float
    scoring: str | None = None


class Progress(Protocol):
    """Shows a run. The trainer prints nothing itself."""

    def begin(self, outline: RunOutline) -> None:
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

    def begin(self, outline: RunOutline) -> None:
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
