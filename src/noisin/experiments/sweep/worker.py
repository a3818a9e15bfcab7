"""A worker: runs the tasks of a sweep one after another, in parallel with other workers."""

from __future__ import annotations

import time
import traceback
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import optuna

from noisin._util.lock import Busy
from noisin.errors import NoisinError
from noisin.experiments.sweep import ledger
from noisin.experiments.sweep.definition import Sweep, SweepRun, SweepTask
from noisin.experiments.sweep.ledger import TASK, WORKER, Ledger
from noisin.experiments.sweep.lock import SweepLock
from noisin.experiments.sweep.outcome import DIGITS, find, forget, note, outcome
from noisin.experiments.sweep.reports import Reports, Tell
from noisin.training.config.section import Section
from noisin.training.record import RunRecord
from noisin.training.runtime.signals import Flag, Interrupted

if TYPE_CHECKING:
    pass

PAUSE = 0.5  # seconds between two polls for work while other workers are busy
ASIDE = 30.0  # seconds to leave alone a task that a process of another sweep is running


class Job(Section):
    """What a worker needs to know."""

    sweep: Sweep
    out: Path
    storage: str
    session: str
    threads: int


class Skip(Exception):
    """The task cannot be run now; its trial counts as failed in the study."""


class Worker:
    """Takes a task, runs it, and takes another, until none is left.

    Args:
        job: what to do.
        flag: the signal to stop.
        tell: called with messages for the process that started this one, as dicts.
    """

    def __init__(self, job: Job, flag: Flag, tell: Tell) -> None:
        self.job, self.sweep, self.flag, self.tell = job, job.sweep, flag, tell
        self.ledger = Ledger(job.sweep, job.out, job.storage, job.session)
        self.aside: dict[int, float] = {}

    def work(self) -> None:
        """Run tasks until none is left, all with the same libraries for their products."""
        from noisin._util import products
        from noisin.training.runtime.products import chosen_products

        with SweepLock(self.job.out):
            choice = self.ledger.products(chosen_products)
        with products.using(products.choice_of(choice, self.job.storage)):
            while not self._is_over():
                if not self._take():
                    time.sleep(PAUSE)

    def _is_over(self) -> bool:
        self.stop_if_told()
        return all(standing.is_over for standing in self.ledger.survey())

    def _take(self) -> bool:
        """Take a task and run it, if one is waiting. The lock is released once it is taken."""
        with SweepLock(self.job.out) as lock:
            trial = self.ledger.next()
            if trial is None or self.aside.get(trial.user_attrs[TASK], 0) > time.monotonic():
                return False
            self.ledger.study.sampler = ledger.sampler(self.sweep.search, trial.user_attrs[TASK])
            self._optimize(trial.number, lock)
        return True

    def _optimize(self, number: int, lock: SweepLock) -> None:
        """Let Optuna call the objective with the next trial, with a heartbeat while it runs."""
        bugs: list[Exception] = []

        def objective(trial: optuna.Trial) -> float:
            try:
                return self._do(trial, lock)
            except (Skip, optuna.TrialPruned):
                raise
            except Exception as error:
                bugs.append(error)
                raise

        study = self.ledger.study
        try:
            study.optimize(objective, n_trials=1, catch=(Skip,))
        except (ValueError, AssertionError):
            # Optuna raises these for a trial that another machine has marked as failed meanwhile,
            # because it received no heartbeat. The record of the run exists all the same.
            if bugs or not study.get_trials(deepcopy=False)[number].state.is_finished():
                raise

    def _do(self, trial: optuna.Trial, lock: SweepLock) -> float:
        """Optuna's objective: the mean of the lowest validation scores of the task's runs."""
        trial.set_user_attr(WORKER, ledger.here())
        lock.release()
        task = self._task(trial)
        return fmean(self._train(run, trial, first=run is task.runs[0]) for run in task.runs)

    def _task(self, trial: optuna.Trial) -> SweepTask:
        if self.sweep.search is None:
            number: int = trial.user_attrs[TASK]
            return self.sweep.tasks[number]
        try:
            return self.sweep.searched(ledger.suggest(trial, self.sweep.search))
        except NoisinError as error:
            self.ledger.refuse(trial, str(error))
            raise Skip from None

    def _train(self, run: SweepRun, trial: optuna.Trial, first: bool) -> float:
        """Make one run, unless it has ended; return the value of a complete one."""
        config, session = run.config, self.job.session
        folder = self._folder(run)
        end = outcome(folder, config, session, self.sweep.pruning is not None)
        if end.state == "open":
            self.stop_if_told()
            forget(folder)
            try:
                self._fit(run, folder, trial, first)
            finally:
                self.tell({"over": run.name})
            end = outcome(folder, config, session, pruning=True)
        if end.state == "complete":
            return end.value
        if end.state in ("diverged", "pruned"):
            raise optuna.TrialPruned(end.message)
        raise Skip

    def _fit(self, run: SweepRun, folder: Path, trial: optuna.Trial, first: bool) -> None:
        """Train, and record how the run ended where the trainer does not."""
        from noisin.training import run as train
        from noisin.training.runtime.divergence import Diverged

        def ended(state: Any, message: object) -> None:
            note(folder, state, run.config, str(message), self.job.session)

        try:
            judged = trial if first and self.sweep.pruning is not None else None
            reports = Reports(run, RunRecord(folder), judged, self.tell, self.stop_if_told)
            train(run.config, folder, progress=reports)
        except Diverged as error:
            ended("diverged", error)
        except optuna.TrialPruned as error:
            ended("pruned", error)
        except Busy:
            self.aside[trial.user_attrs[TASK]] = time.monotonic() + ASIDE
            raise Skip from None
        except Exception as error:  # whatever it is, the other runs can be made
            if not isinstance(error, NoisinError):
                traceback.print_exc()
            ended("failed", str(error) or type(error).__name__)

    def _folder(self, run: SweepRun) -> Path:
        """The folder of the run, in any sweep of ``out``; a new one if there is none."""
        with SweepLock(self.job.out):
            folder = find(self.job.out, run.digest)
            if folder is None:
                folder = self.job.out / self.sweep.name / f"{run.name}-{run.digest[:DIGITS]}"
                folder.mkdir(parents=True)
            return folder

    def stop_if_told(self) -> None:
        """If a signal has arrived, raise the exception that makes the trainer save."""
        if self.flag.signum is not None:
            raise Interrupted(self.flag.signum, "stopped.")
