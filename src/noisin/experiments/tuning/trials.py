"""Trials as run folders: each is an ordinary run, which continues from its checkpoint."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from noisin.experiments import presets
from noisin.experiments.records import judged
from noisin.experiments.sweep.outcome import note, outcome
from noisin.experiments.tuning.tunable import Tunable
from noisin.training.record import RunRecord
from noisin.training.runtime.progress import Progress
from noisin.training.runtime.signals import Flag, Interrupted
from noisin.tuning.search import TuningTrial

if TYPE_CHECKING:
    from noisin.tasks import Task

NAME = "tuned"  # of the file with the result; its run is one of the trials


@dataclass(frozen=True)
class Trials:
    """Trains what a search asks for, unless the folder already contains it.

    Attributes:
        tunable: the settings.
        folder: the folder of the folders of the runs.
        task: the data.
        progress: shows the runs.
        flag: the signal to stop.
    """

    tunable: Tunable
    folder: Path
    task: Task
    progress: Progress
    flag: Flag

    def __call__(self, trial: TuningTrial) -> tuple[float, Path]:
        """The lowest score on valid, in nats per target, and the folder of the run."""
        record = self.record(trial.std, trial.lr)
        config = self.tunable.config(trial.std, trial.lr, trial.epochs)
        if self._has_ended(record, trial):
            return self._score(record, trial), record.folder
        self._stop_if_told()
        self.progress.note(f"std {trial.std:g}{_lr(trial)}, to epoch {trial.epochs}.")
        from noisin.training import run as train
        from noisin.training.runtime.divergence import Diverged

        try:
            train(config, record.folder, task=self.task, progress=self.progress)
        except Diverged as error:
            note(record.folder, "diverged", config, str(error), "")
            self.progress.note(str(error))
        return self._score(record, trial), record.folder

    def record(self, std: float, lr: float | None) -> RunRecord:
        """The record of a std: in the folder that ``noisin train`` chooses for the same settings.

        That is why the file with the result is continued from its trial.
        """
        config = self.tunable.config(std, lr)
        return RunRecord(self.folder / f"{NAME}-{presets.mark([config])}")

    def seconds(self, std: float, lr: float | None, epochs: int) -> float:
        """The time that the first epochs of a trial took."""
        return float(self.record(std, lr).metrics[:epochs][-1]["seconds"])

    def _has_ended(self, record: RunRecord, trial: TuningTrial) -> bool:
        """Whether the trial has at least these epochs, or has diverged within them."""
        if not record.exists:
            return False
        config = self.tunable.config(trial.std, trial.lr, trial.epochs)
        ended = outcome(record.folder, config, "", pruning=False).state != "open"
        is_further = record.config.train.epochs > trial.epochs
        return ended or (is_further and len(record.metrics) >= trial.epochs)

    def _score(self, record: RunRecord, trial: TuningTrial) -> float:
        config = self.tunable.config(trial.std, trial.lr, trial.epochs)
        if outcome(record.folder, config, "", pruning=False).state == "diverged":
            return math.inf
        bests = judged(config, record.metrics[: trial.epochs]).bests.values()
        return min((best.nats for best in bests), default=math.inf)

    def _stop_if_told(self) -> None:
        if self.flag.signum is not None:
            raise Interrupted(
                self.flag.signum,
                f"stopped; all runs are saved in {self.folder}. Run the same command again to "
                f"continue.",
            )


def _lr(trial: TuningTrial) -> str:
    return "" if trial.lr is None else f", lr {trial.lr:g}"
