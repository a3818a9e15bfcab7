"""The progress of a run of a sweep, reported to the parent process and to the study."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import optuna

from noisin.experiments.sweep.definition import SweepRun
from noisin.tasks.unit import Unit
from noisin.training.record import RunRecord
from noisin.training.runtime.progress import RunOutline, Status
from noisin.training.scores import in_unit

Tell = Callable[[dict[str, Any]], None]


class Reports:
    """Reports a trainer's progress to the parent process, and to the study, which may prune.

    Args:
        run: the run.
        record: its record, which contains the epochs of earlier sessions.
        trial: the trial that may be pruned, or None.
        tell: called with messages for the parent process.
        look: raises if a signal has asked to stop; the trainer then saves.
    """

    def __init__(
        self,
        run: SweepRun,
        record: RunRecord,
        trial: optuna.Trial | None,
        tell: Tell,
        look: Callable[[], None],
    ) -> None:
        self.run, self.record, self.trial, self.tell, self.look = run, record, trial, tell, look
        epochs = run.config.train.epochs
        begun = len(record.metrics) / epochs  # the part that is done already
        self._mine = {"run": run.name, "epochs": epochs, "begun": begun}

    def begin(self, _: RunOutline) -> None:
        """A run starts or continues: report the epochs that the study does not know yet."""
        self.tell(self._mine)
        unit = self.record.unit
        for metrics in self.record.metrics:
            self._report(metrics, unit)

    def status(self, status: Status) -> None:
        """Report the current status."""
        self.look()
        score = None if status.scoring else _finite(status.unit.value(status.nats))
        self.tell(
            self._mine
            | {"epoch": status.epoch, "done": status.done, "left": _finite(status.seconds_left)}
            | {"score": score, "unit": asdict(status.unit)}
        )

    def epoch(self, metrics: Mapping[str, Any], unit: Unit) -> None:
        """An epoch has ended: continue, or prune the run."""
        self.tell({"run": self.run.name, "finished": metrics["epoch"]})
        self.look()
        self._report(metrics, unit)
        if self.trial is None:
            return
        last = metrics["epoch"] >= self.run.config.train.epochs
        if not last and self.trial.should_prune():
            raise optuna.TrialPruned(f"others were better after {metrics['epoch']} epochs.")

    def note(self, message: str) -> None:
        """Pass on a message for the user."""
        self.tell({"note": f"{self.run.name}: {message}"})

    def end(self) -> None:
        """Nothing: the worker reports the end."""

    def _report(self, metrics: Mapping[str, Any], unit: Unit) -> None:
        if self.trial is None:
            return
        measured = [in_unit(metrics[name], unit) for name in ("valid", "valid_averaged")]
        value = min((score for score in measured if score is not None), default=None)
        known = self.trial.study.get_trials(deepcopy=False)[self.trial.number].intermediate_values
        if metrics["epoch"] in known:
            return
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # which the worker handles
            self.trial.report(float("inf") if value is None else value, metrics["epoch"])


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None
