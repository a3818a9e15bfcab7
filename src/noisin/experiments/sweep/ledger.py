"""The ledger of a sweep: leases as the queue, an Optuna study as its history, folders as the truth.

A worker takes a task by a lease (see :mod:`noisin.experiments.sweep.leases`) and makes a trial for
it. What has ended is known from the run folders, as far as they are visible from this machine, and
from the database otherwise: a run in another folder is not repeated, and a run whose folder is gone
is made again. The database may be lost: a grid is then entered again from its folders.
"""

from __future__ import annotations

import os
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from noisin.experiments.fingerprint import fingerprint
from noisin.experiments.sweep.database import (
    asking,
    disconnect,
    insisting,
    open_database,
)
from noisin.experiments.sweep.definition import Sweep, SweepTask
from noisin.experiments.sweep.halving import Halving
from noisin.experiments.sweep.leases import LEASE, Lease, LeaseRow, Leases, State
from noisin.experiments.sweep.lock import place_of
from noisin.experiments.sweep.outcome import DIGITS, Outcome, all_folders, outcome
from noisin.experiments.sweep.sampling import sampler, settings
from noisin.experiments.sweep.standing import Standing
from noisin.training.record import RunRecord

TASK, WORKER, REFUSED = "task", "worker", "refused"  # what a trial is labelled with
PRODUCTS, SETTINGS = "products", "settings"  # and the study
OVERLAP = 60.0  # seconds: an end that was committed late is read again


class Ledger:
    """Which tasks are open, which are running, and which have ended.

    Args:
        sweep: the sweep.
        out: the folder of all sweeps, on this machine.
        storage: the address of the database.
        session: identifies the command that is running.
        lease: seconds after which a worker without a sign of life is considered dead.
        patience: seconds to wait for a database server that cannot be reached.
    """

    def __init__(
        self,
        sweep: Sweep,
        out: Path,
        storage: str,
        session: str,
        *,
        lease: float = LEASE,
        patience: float = 0.0,
    ) -> None:
        self.sweep, self.out, self.session = sweep, out, session
        self.storage = storage
        self._database = open_database(storage, patience)
        with self._asking():
            self.study = insisting(lambda: _open(sweep, self._database))
            self.leases = Leases(
                self._database.engine, self.study.study_name, " ".join(here()), place_of(out), lease
            )
        self._over: dict[int, Standing] = {}
        self._ended: dict[int, LeaseRow] = {}
        self._read_until = 0.0

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Name a database that cannot be used, and keep no connection to a server afterwards."""
        try:
            with asking(self.storage):
                yield
        finally:
            disconnect(self._database.engine)

    # Taking tasks

    def take(self) -> Lease | None:
        """Take a task, if one is free."""
        with self._asking():
            return self.leases.take(self.sweep.count, self.session)

    def is_over(self) -> bool:
        """Whether no task is left, neither free nor taken."""
        with self._asking():
            return self.leases.is_over(self.sweep.count, self.session)

    def trial(self, lease: Lease) -> optuna.Trial:
        """A new trial for a task that was taken; it keeps the values that a search has chosen."""
        with self._asking():
            newest = None if lease.before is None else self._found(lease.before)
            if newest is not None:
                self._fail(newest)
            self.study.sampler = sampler(self.sweep.search, lease.task)
            template = _again(lease.task, newest, TrialState.RUNNING, worker=list(here()))
            storage = self.study._storage  # with the cache that samplers read
            trial_id = storage.create_new_trial(self.study._study_id, template)
            trial = optuna.Trial(self.study, trial_id)
            lease.set_trial(trial.number)
            return trial

    def end(self, lease: Lease, trial: optuna.Trial | None, standing: Standing) -> None:
        """End a task in the database, and then in the study, so that a search can learn from it.

        Raises:
            LeaseLost: another worker has taken the task over; nothing was changed.
        """
        with self._asking():
            lease.end(_state(standing), self._result(standing), self.session)
            number = lease.before if trial is None else trial.number
            self._tell(lease.task, None if number is None else self._found(number), standing)

    def give_up(self, lease: Lease, trial: optuna.Trial, after: float = 0.0) -> None:
        """Return a task to the queue, for others to take after so many seconds."""
        with self._asking():
            lease.release(after)
            self._fail(self._found(trial.number))

    def refuse(self, lease: Lease, trial: optuna.Trial, message: str) -> None:
        """Note that the settings which a search has chosen are invalid."""
        with self._asking():
            trial.set_user_attr(REFUSED, message)
            lease.end("refused")
            self._fail(self._found(trial.number))

    def products(self, choose: Callable[[], str]) -> str:
        """The libraries of the products of all runs: the choice of the first worker."""
        with self._asking():
            known = insisting(lambda: self.study.user_attrs.get(PRODUCTS))
            return self.leases.agree(choose if known is None else lambda: str(known))

    # The state of all tasks

    def survey(self) -> list[Standing]:
        """The state of all tasks. The database is asked only for what has ended meanwhile."""
        with self._asking():
            self._read_ended()
            trials = self._trials() if self.sweep.search is not None else {}
        folders = all_folders(self.out)
        return [self._standing(n, trials.get(n, ()), folders) for n in range(self.sweep.count)]

    def _read_ended(self) -> None:
        for row in self.leases.rows(ended_after=self._read_until - OVERLAP):
            self._ended[row.task] = row
            self._read_until = max(self._read_until, row.ended)

    def recover(self) -> None:
        """Make the database agree with what is visible here: folders and processes.

        The caller holds the lock.
        """
        with self._asking():
            insisting(self._recover_all)

    def _recover_all(self) -> None:
        trials = self._trials()
        missing = range(self.leases.count(), self.sweep.count)
        self.leases.add({n: _newest_number(trials.get(n, [])) for n in missing})
        folders = all_folders(self.out)
        for row in self.leases.rows()[: self.sweep.count]:
            self._recover(row, trials.get(row.task, []), folders)

    def _recover(
        self, row: LeaseRow, trials: Sequence[FrozenTrial], folders: Mapping[str, Path]
    ) -> None:
        if row.alive and not _is_alive(row.holder):
            self.leases.expire(row)
        elif row.alive:
            return
        for trial in trials:
            if row.state == "open":
                self._fail(trial)
        standing = self._standing(row.task, trials, folders)
        known = {trial.state for trial in trials} & {TrialState.COMPLETE, TrialState.PRUNED}
        is_here = row.place in (self.leases.place, "")
        if row.state in ("open", "failed") and standing.is_over and _state(standing) != "refused":
            lease = self.leases.take_task(row.task)
            if lease is not None:
                self.end(lease, None, standing)
        elif row.state in ("complete", "diverged", "pruned") and is_here:
            if not standing.is_over:  # its folder is gone
                lease = self.leases.take_task(row.task, (row.state,))
                if lease is not None:
                    lease.release()
            elif not known:
                self._tell(row.task, trials[-1] if trials else None, standing)

    def _result(self, standing: Standing) -> dict[str, Any]:
        """What other machines need to know about a task whose folders they do not see."""
        folders = all_folders(self.out)
        found = [folders.get(run.digest[:DIGITS]) for run, _ in standing.runs]
        complete = all(end.state == "complete" for end in standing.outcomes)
        return {
            "outcomes": [end.to_json() for end in standing.outcomes],
            "host": socket.gethostname(),
            "folders": [str(folder) for folder in found],
            "records": [fingerprint(RunRecord(f)) for f in found if f and complete],
        }

    def _tell(self, number: int, newest: FrozenTrial | None, standing: Standing) -> None:
        """Report an ended task to the study, unless it knows."""
        if any(end.state == "failed" for end in standing.outcomes):
            if newest is not None:
                self._fail(newest)
            return
        complete = all(end.state == "complete" for end in standing.outcomes)
        state = TrialState.COMPLETE if complete else TrialState.PRUNED
        value = fmean(end.value for end in standing.outcomes) if complete else None
        if newest is not None and newest.state is TrialState.RUNNING:
            self._finish(newest, state, value)
        elif newest is None or newest.state is TrialState.FAIL:
            self.study.add_trial(_again(number, newest, state, value))

    def _fail(self, trial: FrozenTrial) -> None:
        if trial.state is TrialState.RUNNING:
            self._finish(trial, TrialState.FAIL)

    def _finish(self, trial: FrozenTrial, state: TrialState, value: float | None = None) -> None:
        """Finish a trial in the study, unless another process does so at this moment."""
        with suppress(UpdateFinishedTrialError):
            self.study.tell(trial.number, value, state, skip_if_finished=True)

    def _standing(
        self, number: int, trials: Sequence[FrozenTrial], folders: Mapping[str, Path]
    ) -> Standing:
        if number in self._over:
            return self._over[number]
        refused = [trial.user_attrs[REFUSED] for trial in trials if REFUSED in trial.user_attrs]
        if refused:
            standing = Standing(None, (Outcome("failed", message=refused[-1]),))
        else:
            task = self._task(number, trials)
            runs = () if task is None else task.runs
            pruning = self.sweep.pruning is not None
            standing = Standing(
                task,
                tuple(
                    outcome(folders.get(run.digest[:DIGITS]), run.config, self.session, pruning)
                    for run in runs
                ),
            )
            if not standing.is_over and task is not None:
                standing = self._elsewhere(number, task) or standing
        if standing.is_over:
            self._over[number] = standing
        return standing

    def _elsewhere(self, number: int, task: SweepTask) -> Standing | None:
        """How a task has ended in a folder that is not visible here, or failed for this session.

        Another session may have tried again what failed here, and noted its own failure.
        """
        row = self._ended.get(number)
        if row is None or not row.result:
            return None
        failed, is_here = row.state == "failed", row.place == self.leases.place
        if (failed and not row.failed_in(self.session)) or (is_here and not failed):
            return None
        return Standing(task, tuple(map(Outcome.from_json, row.result["outcomes"])))

    def _task(self, number: int, trials: Sequence[FrozenTrial]) -> SweepTask | None:
        if self.sweep.search is None:
            return self.sweep.tasks[number]
        space = set(self.sweep.search.space)
        chosen = [trial.params for trial in trials if set(trial.params) == space]
        return self.sweep.searched(chosen[-1]) if chosen else None

    def _trials(self) -> dict[int, list[FrozenTrial]]:
        """The trials of each task, in the order of their numbers."""
        found: dict[int, list[FrozenTrial]] = defaultdict(list)
        for trial in self._all_trials():
            if TASK in trial.user_attrs:
                found[trial.user_attrs[TASK]].append(trial)
        return found

    def _all_trials(self) -> list[FrozenTrial]:
        return insisting(lambda: self.study.get_trials(deepcopy=False))

    def _found(self, number: int) -> FrozenTrial:
        study_id = self.study._study_id
        known = self._database.get_trial_id_from_study_id_trial_number(study_id, number)
        return self._database.get_trial(known)


def here() -> tuple[str, str, str]:
    """This process, as it is visible to others: host, namespace of process ids, process id."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = "-"
    return socket.gethostname(), space, str(os.getpid())


def _is_alive(holder: str) -> bool:
    """Whether the holder of a lease may be alive, as far as can be seen from this machine."""
    if holder.split(" ")[:-1] != list(here()[:-1]):
        return True  # the lease decides
    try:
        os.kill(int(holder.split(" ")[-1]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _state(standing: Standing) -> State:
    """How a task has ended as a whole."""
    if standing.task is None:
        return "refused"
    ends = {end.state for end in standing.outcomes}
    for state in ("failed", "diverged", "pruned"):
        if state in ends:
            return state
    return "complete"


def _newest_number(trials: Sequence[FrozenTrial]) -> int | None:
    return trials[-1].number if trials else None


def _again(
    number: int,
    newest: FrozenTrial | None,
    state: TrialState,
    value: float | None = None,
    **labels: Any,
) -> FrozenTrial:
    """A copy of the newest trial of a task, with its values and reports."""
    return optuna.create_trial(
        state=state,
        value=value,
        params=newest.params if newest else None,
        distributions=newest.distributions if newest else None,
        intermediate_values=newest.intermediate_values if newest else None,
        user_attrs={TASK: number, **labels},
    )


def _open(sweep: Sweep, database: optuna.storages.RDBStorage) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        storage=database,
        study_name=f"{sweep.name}-{sweep.digest[:8]}",
        direction="minimize",
        sampler=sampler(sweep.search, 0),
        pruner=Halving(sweep.pruning) if sweep.pruning else optuna.pruners.NopPruner(),
        load_if_exists=True,
    )
    if study.user_attrs.get(SETTINGS) != settings(sweep.search):
        study.set_user_attr(SETTINGS, settings(sweep.search))
    return study
