"""A process that does the tasks of a sweep, one after another.

It is told what to do by one line of JSON on standard input, which then stays open as long as the
one who started it lives: when it closes, the worker saves and stops. It answers with lines of JSON
on standard output; whatever else is printed goes to standard error, which is a log.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NoReturn

import optuna

from noisin import data
from noisin.data import Corpus
from noisin.errors import NoisinError
from noisin.experiments.sweep import ledger
from noisin.experiments.sweep.definition import Run, Sweep, Task
from noisin.experiments.sweep.ledger import TASK, WORKER, Ledger
from noisin.experiments.sweep.outcome import DIGITS, find, forget, note, outcome
from noisin.experiments.sweep.turn import Turn
from noisin.training.lock import Busy
from noisin.training.progress import Status
from noisin.training.record import RunRecord
from noisin.training.section import Section
from noisin.training.signals import Flag, Interrupted, caught

PAUSE = 0.5  # seconds between two looks for work, while others do what is left
ASIDE = 30.0  # seconds to leave a task alone that a process of another sweep is at


class Job(Section):
    """What a worker has to know."""

    sweep: Sweep
    out: Path
    storage: str
    session: str
    threads: int


class Skip(Exception):
    """A task that cannot be done now; the study is told that the trial has failed."""


class Worker:
    """Takes a task, does it, and takes another, until there is none left.

    Args:
        job: what to do.
        flag: the signal to stop.
        tell: takes what there is to tell, as a dict.
    """

    def __init__(self, job: Job, flag: Flag, tell: Any) -> None:
        self.job, self.sweep, self.flag, self.tell = job, job.sweep, flag, tell
        self.ledger = Ledger(job.sweep, job.out, job.storage, job.session)
        self.aside: dict[int, float] = {}

    def work(self) -> None:
        """All there is to do."""
        while True:
            self.stop_if_told()
            if all(standing.is_over for standing in self.ledger.survey()):
                return
            if not self._take():
                time.sleep(PAUSE)

    def _take(self) -> bool:
        """Take a task and do it, if one is waiting. The turn ends when the task is taken."""
        with Turn(self.job.out) as turn:
            trial = self.ledger.next()
            if trial is None or self.aside.get(trial.user_attrs[TASK], 0) > time.monotonic():
                return False
            self.ledger.study.sampler = ledger.sampler(self.sweep.search, trial.user_attrs[TASK])
            self._optimize(trial.number, turn)
        return True

    def _optimize(self, number: int, turn: Turn) -> None:
        """Let Optuna call us with the trial that is next, with a heartbeat as long as it takes."""
        bugs: list[Exception] = []

        def objective(trial: optuna.Trial) -> float:
            try:
                return self._do(trial, turn)
            except (Skip, optuna.TrialPruned):
                raise
            except Exception as error:
                bugs.append(error)
                raise

        study = self.ledger.study
        try:
            study.optimize(objective, n_trials=1, catch=(Skip,))
        except (ValueError, AssertionError):
            # So Optuna ends a trial that was failed meanwhile, by a machine that heard no heartbeat
            # of it. The record is there all the same.
            if bugs or not study.get_trials(deepcopy=False)[number].state.is_finished():
                raise

    def _do(self, trial: optuna.Trial, turn: Turn) -> float:
        """What Optuna calls the objective: the mean of the lowest validation perplexities."""
        trial.set_user_attr(WORKER, ledger.here())
        turn.release()
        task = self._task(trial)
        return fmean(self._train(run, trial, first=run is task.runs[0]) for run in task.runs)

    def _task(self, trial: optuna.Trial) -> Task:
        if self.sweep.search is None:
            number: int = trial.user_attrs[TASK]
            return self.sweep.tasks[number]
        try:
            return self.sweep.searched(ledger.suggest(trial, self.sweep.search))
        except NoisinError as error:
            self.ledger.refuse(trial, str(error))
            raise Skip from None

    def _train(self, run: Run, trial: optuna.Trial, first: bool) -> float:
        """One run, unless it is over; the value of a complete one."""
        config, session = run.config, self.job.session
        folder = self._folder(run)
        end = outcome(folder, config, session, self.sweep.pruning is not None)
        if end.state == "open":
            self.stop_if_told()
            forget(folder)
            reports = Reports(run, RunRecord(folder), trial if first else None, self)
            try:
                self._fit(run, folder, reports)
            finally:
                self.tell({"over": run.name})
            end = outcome(folder, config, session, pruning=True)
        if end.state == "complete":
            return end.value
        if end.state in ("diverged", "pruned"):
            raise optuna.TrialPruned(end.message)
        raise Skip

    def _fit(self, run: Run, folder: Path, reports: Reports) -> None:
        """Train, and write down how it ended if it did not by itself."""
        from noisin.training import Trainer
        from noisin.training.watch import Diverged

        def ended(state: Any, message: object) -> None:
            note(folder, state, run.config, str(message), self.job.session)

        try:
            text = _corpus(run.config.data.name, run.config.data.folder)
            Trainer(run.config, folder, reports).fit(text)
        except Diverged as error:
            ended("diverged", error)
        except optuna.TrialPruned as error:
            ended("pruned", error)
        except Busy:
            self.aside[reports.task] = time.monotonic() + ASIDE
            raise Skip from None
        except Exception as error:  # whatever it is, the others can be done
            if not isinstance(error, NoisinError):
                traceback.print_exc()
            ended("failed", str(error) or type(error).__name__)

    def _folder(self, run: Run) -> Path:
        """Where the run is, in whichever sweep of the folder, or where it is to be."""
        with Turn(self.job.out):
            folder = find(self.job.out, run.digest)
            if folder is None:
                folder = self.job.out / self.sweep.name / f"{run.name}-{run.digest[:DIGITS]}"
                folder.mkdir(parents=True)
            return folder

    def stop_if_told(self) -> None:
        """Raise what makes the trainer save, if a signal came that it has not seen."""
        if self.flag.signum is not None:
            raise Interrupted(self.flag.signum, "stopped.")


class Reports:
    """Whom the trainer tells of its progress: the study, to prune, and whoever started us."""

    def __init__(
        self, run: Run, record: RunRecord, trial: optuna.Trial | None, worker: Worker
    ) -> None:
        self.run, self.record, self.trial, self.worker = run, record, trial, worker
        self.task: int = trial.user_attrs[TASK] if trial is not None else -1

    def begin(self, _: str) -> None:
        """A run starts or goes on: the study hears of the epochs that it has not heard of."""
        self.worker.tell({"run": self.run.name, "epochs": self.run.config.train.epochs})
        for metrics in self.record.metrics:
            self._report(metrics)

    def status(self, status: Status) -> None:
        """It is so far now."""
        self.worker.stop_if_told()
        self.worker.tell(
            {"run": self.run.name, "epoch": status.epoch, "epochs": status.epochs}
            | {"done": status.done, "perplexity": status.perplexity}
            | {"left": None if status.seconds_left == float("inf") else status.seconds_left}
        )

    def epoch(self, metrics: Mapping[str, Any]) -> None:
        """An epoch is over: go on, or end here."""
        self.worker.tell({"run": self.run.name, "finished": metrics["epoch"]})
        self.worker.stop_if_told()
        self._report(metrics)
        if self.trial is None or self.worker.sweep.pruning is None:
            return
        last = metrics["epoch"] >= self.run.config.train.epochs
        if not last and self.trial.should_prune():
            raise optuna.TrialPruned(f"others were better after {metrics['epoch']} epochs.")

    def note(self, message: str) -> None:
        """Something that the user should know."""
        self.worker.tell({"note": f"{self.run.name}: {message}"})

    def end(self) -> None:
        """Nothing: the worker tells."""

    def _report(self, metrics: Mapping[str, Any]) -> None:
        if self.trial is None or self.worker.sweep.pruning is None:
            return
        averaged = self.run.config.train.averaging == "nt" and metrics["valid_averaged"]
        value = averaged or metrics["valid"]
        known = self.trial.study.get_trials(deepcopy=False)[self.trial.number].intermediate_values
        if metrics["epoch"] in known:
            return
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # as in _take
            self.trial.report(float("inf") if value is None else value, metrics["epoch"])


@cache
def _corpus(name: str, folder: str | None) -> Corpus:
    return data.load(name, folder)


def _stop_with_parent() -> None:
    """Stop when standard input closes: whoever started us has died."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> NoReturn:
    """Do what standard input says."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer

    def tell(message: Mapping[str, Any]) -> None:
        with suppress(OSError):  # nobody listens any more, and we shall soon hear of it
            os.write(answers, (json.dumps(message) + "\n").encode())

    with caught() as flag:
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(0, 1 << 20) or b"\n"
        threading.Thread(target=_stop_with_parent, daemon=True).start()
        try:
            import torch

            job = Job(**json.loads(line))
            torch.set_num_threads(job.threads)
            Worker(job, flag, tell).work()
        except NoisinError as error:
            tell({"error": str(error)})
            sys.exit(2)
        except Interrupted as error:
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            sys.exit(130)
    sys.exit(0)


if __name__ == "__main__":
    main()
