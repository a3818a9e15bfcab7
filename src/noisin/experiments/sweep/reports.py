"""Whom the trainer of a sweep tells of its progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import optuna

from noisin.experiments.sweep.definition import Run
from noisin.tasks.unit import Unit
from noisin.training.record import RunRecord
from noisin.training.runtime.progress import Status

Tell = Callable[[dict[str, Any]], None]


class Reports:
    """A trainer's progress: told to whoever started us, and to the study, which may prune.

    Args:
        run: the run.
        record: its record, in which are the epochs of earlier sessions.
        trial: what prunes it, or None.
        tell: takes what there is to tell.
        look: raises, where a signal has asked to stop; the trainer then saves.
    """

    def __init__(
        self,
        run: Run,
        record: RunRecord,
        trial: optuna.Trial | None,
        tell: Tell,
        look: Callable[[], None],
    ) -> None:
        self.run, self.record, self.trial, self.tell, self.look = run, record, trial, tell, look
        epochs = run.config.train.epochs
        begun = len(record.metrics) / epochs  # the part that is done already
        self._mine = {"run": run.name, "epochs": epochs, "begun": begun}

    def begin(self, _: str) -> None:
        """A run starts or goes on: the study hears of the epochs that it has not heard of."""
        self.tell(self._mine)
        for metrics in self.record.metrics:
            self._report(metrics)

    def status(self, status: Status) -> None:
        """It is so far now."""
        self.look()
        self.tell(
            self._mine
            | {
                "epoch": status.epoch,
                "done": status.done,
                "perplexity": status.unit.value(status.nats),
            }
            | {"left": None if status.seconds_left == float("inf") else status.seconds_left}
        )

    def epoch(self, metrics: Mapping[str, Any], _: Unit) -> None:
        """An epoch is over: go on, or end here."""
        self.tell({"run": self.run.name, "finished": metrics["epoch"]})
        self.look()
        self._report(metrics)
        if self.trial is None:
            return
        last = metrics["epoch"] >= self.run.config.train.epochs
        if not last and self.trial.should_prune():
            raise optuna.TrialPruned(f"others were better after {metrics['epoch']} epochs.")

    def note(self, message: str) -> None:
        """Something that the user should know."""
        self.tell({"note": f"{self.run.name}: {message}"})

    def end(self) -> None:
        """Nothing: the worker tells."""

    def _report(self, metrics: Mapping[str, Any]) -> None:
        if self.trial is None:
            return
        measured = (metrics["valid"], metrics["valid_averaged"])
        value = min((score["nats"] for score in measured if score is not None), default=None)
        known = self.trial.study.get_trials(deepcopy=False)[self.trial.number].intermediate_values
        if metrics["epoch"] in known:
            return
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # as the worker knows
            self.trial.report(float("inf") if value is None else value, metrics["epoch"])
