"""A worker: runs the tasks of a sweep one after another, in parallel with other workers."""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import optuna

from noisin._util.lock import Busy
from noisin.errors import NoisinError
from noisin.experiments.sweep.database import LeaseLost, is_broken_connection
from noisin.experiments.sweep.definition import Sweep, SweepRun, SweepTask
from noisin.experiments.sweep.exchange import PUBLISHED
from noisin.experiments.sweep.leases import LEASE, PATIENCE, Lease
from noisin.experiments.sweep.ledger import Ledger
from noisin.experiments.sweep.lock import SweepLock
from noisin.experiments.sweep.mirror import LAST, Mirror, OutOfReach
from noisin.experiments.sweep.outcome import DIGITS, Outcome, find, forget, note, outcome
from noisin.experiments.sweep.reports import Reports, Tell
from noisin.experiments.sweep.sampling import suggest
from noisin.experiments.sweep.standing import Standing
from noisin.training.config.section import Section
from noisin.training.record import RunRecord
from noisin.training.runtime.signals import Flag, Interrupted

T = TypeVar("T")
PAUSE, LONGEST_PAUSE = 0.5, 5.0  # seconds between two polls for work while others are busy
ASIDE = 30.0  # seconds to leave alone a task that a process of another sweep is running
BREAKS = 20  # broken connections to the database in a row after which a worker gives up


class Job(Section):
    """What a worker needs to know."""

    sweep: Sweep
    out: Path
    storage: str
    session: str
    threads: int
    lease: float = LEASE
    patience: float = PATIENCE
    url: str | None = None  # where the runs are copied to, if machines share no folder
    is_recovered: bool = False  # by the process that starts the worker

    def ledger(self) -> Ledger:
        """The ledger of the sweep, for this process."""
        return Ledger(
            *(self.sweep, self.out, self.storage, self.session),
            lease=self.lease,
            patience=self.patience,
        )


class Worker:
    """Takes a task, runs it, and takes another, until none is left.

    Args:
        job: what to do.
        flag: the signal to stop.
        tell: called with messages for the process that started this one, as dicts.
    """

    def __init__(self, job: Job, flag: Flag, tell: Tell) -> None:
        self.job, self.sweep, self.flag, self.tell = job, job.sweep, flag, tell
        self.ledger = job.ledger()
        self.mirror = Mirror(job.url, job.sweep.name) if job.url else None
        self._is_recovered = job.is_recovered
        self._breaks = 0
        self._newest: Path | None = None  # the checkpoint that was copied last

    def work(self) -> None:
        """Run tasks until none is left, all with the same libraries for their products."""
        from noisin._util import products
        from noisin.training.runtime.products import chosen_products

        choice = self.ledger.products(chosen_products)
        with products.using(products.choice_of(choice, self.job.storage)):
            pause = PAUSE
            while True:
                self.stop_if_told()
                if self._take_patiently():
                    pause = PAUSE
                elif not self._is_recovered:
                    self._recover()
                elif self.ledger.is_over():
                    return
                else:
                    time.sleep(pause * random.uniform(0.5, 1.0))
                    pause = min(1.5 * pause, LONGEST_PAUSE)

    def _recover(self) -> None:
        with SweepLock(self.job.out):
            self.ledger.recover()
        self._is_recovered = True

    def _take_patiently(self) -> bool:
        """Take a task and run it. If the database went away, the task is taken again later."""
        try:
            taken, self._breaks = self._take(), 0
        except Exception as error:
            self._breaks += 1
            if self._breaks > BREAKS or not is_broken_connection(error):
                raise
            return False
        return taken

    def _take(self) -> bool:
        """Take a task and run it, if one is free."""
        lease = self.ledger.take()
        if lease is None:
            return False
        with lease:
            self._run(lease, self.ledger.trial(lease))
        return True

    def _run(self, lease: Lease, trial: optuna.Trial) -> None:
        """Run a task, and end it or return it to the queue."""
        task: SweepTask | None = None
        try:
            task = self._task(lease, trial)
            if task is None:
                return
            standing = Standing(task, self._ends(task, lease, trial))
            self.ledger.end(lease, trial, standing)
            self._publish(standing)
        except Busy:
            self.ledger.give_up(lease, trial, ASIDE)
        except LeaseLost:
            self._withdraw(lease, task)
        except BaseException:
            with suppress(Exception):  # the lease expires
                self.ledger.give_up(lease, trial)
            raise

    def _task(self, lease: Lease, trial: optuna.Trial) -> SweepTask | None:
        """The task; None if a search has chosen settings that are invalid."""
        if self.sweep.search is None:
            return self.sweep.tasks[lease.task]
        try:
            return self.sweep.searched(suggest(trial, self.sweep.search))
        except NoisinError as error:
            if is_broken_connection(error):
                raise
            self.ledger.refuse(lease, trial, str(error))
            return None

    def _ends(self, task: SweepTask, lease: Lease, trial: optuna.Trial) -> tuple[Outcome, ...]:
        """Make the runs of a task, until one is not complete; return how each has ended."""
        ends: list[Outcome] = []
        for run in task.runs:
            judged = trial if not ends and self.sweep.pruning is not None else None
            ends.append(self._train(run, lease, judged))
            if ends[-1].state != "complete":
                break
        return tuple(ends) + (Outcome(),) * (len(task.runs) - len(ends))

    def _withdraw(self, lease: Lease, task: SweepTask | None) -> None:
        """Another worker has the task now: leave the only complete record to it.

        In a folder that both see, the record is the same.
        """
        if self.ledger.leases.is_mine(lease.task):
            return
        for run in task.runs if task else ():
            folder = find(self.job.out, run.digest)
            if folder is not None:
                RunRecord(folder).remove_summary()

    def _train(self, run: SweepRun, lease: Lease, judged: optuna.Trial | None) -> Outcome:
        """Make one run, unless it has ended; return how it ended."""
        config, session = run.config, self.job.session
        pruning = self.sweep.pruning is not None
        folder = self._folder(run)
        end = outcome(folder, config, session, pruning)
        if end.state == "open" and self.mirror is not None:
            self._reaching(partial(self.mirror.restore, folder))  # another may have begun it
            end = outcome(folder, config, session, pruning)
        if end.state == "open":
            self.stop_if_told()
            forget(folder)
            try:
                self._fit(run, folder, lease, judged)
            finally:
                self.tell({"over": run.name})
            end = outcome(folder, config, session, pruning=True)
        return end

    def _fit(self, run: SweepRun, folder: Path, lease: Lease, judged: optuna.Trial | None) -> None:
        """Train, and record how the run ended where the trainer does not."""
        from noisin.training import run as train
        from noisin.training.runtime.divergence import Diverged

        def ended(state: Any, message: object) -> None:
            note(folder, state, run.config, str(message), self.job.session)

        def look() -> None:
            self.stop_if_told()
            lease.check()
            self._copy(folder, lease)

        try:
            reports = Reports(run, RunRecord(folder), judged, self.tell, look)
            train(run.config, folder, progress=reports)
        except Diverged as error:
            ended("diverged", error)
        except optuna.TrialPruned as error:
            ended("pruned", error)
        except OutOfReach:  # the run is saved here, and continues once the URL is there again
            raise
        except (Busy, LeaseLost):  # the run is that of another worker: nothing is copied
            raise
        except Interrupted:
            self._copy(folder, lease)
            raise
        except Exception as error:  # whatever it is, the other runs can be made
            if is_broken_connection(error):
                raise
            if not isinstance(error, NoisinError):
                traceback.print_exc()
            ended("failed", str(error) or type(error).__name__)
        self._copy(folder, lease)

    def _copy(self, folder: Path, lease: Lease) -> None:
        """Copy a new checkpoint to the URL, if there is one.

        Raises:
            LeaseLost: another worker has taken the task over; nothing was copied.
        """
        newest = max(RunRecord(folder).checkpoints.glob("[0-9]*"), default=None)
        ended = any((folder / name).exists() for name in LAST)
        if self.mirror is not None and (ended or newest != self._newest):
            lease.check()  # the checkpoint may have taken longer than the lease
            self._reaching(partial(self.mirror.save, folder, lease.fence), lease)
            self._newest = newest

    def _reaching(self, request: Callable[[], T], lease: Lease | None = None) -> T:
        """The answer of the URL. While it is out of reach, ask again, as long as of a database."""
        began, pause = time.monotonic(), PAUSE
        while True:
            try:
                return request()
            except OutOfReach as error:
                if error.is_final or time.monotonic() - began + pause > self.job.patience:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            self.stop_if_told()
            if lease is not None:
                lease.check()

    def _publish(self, standing: Standing) -> None:
        for run, end in standing.runs:
            folder = find(self.job.out, run.digest)
            if self.mirror is not None and folder is not None and end.state in PUBLISHED:
                self._reaching(partial(self.mirror.publish, folder))

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
