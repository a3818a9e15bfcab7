"""The ledger of a sweep: an Optuna study as the queue, and the run folders as the truth.

Every task is enqueued as a trial, once. A process takes one under the :class:`SweepLock` of the
folder, so no two take the same, and a running trial without a worker's name is one whose worker
died while taking it. The folders decide what has ended: the study may be lost or out of date.
"""

from __future__ import annotations

import os
import re
import socket
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from noisin._util.regular import open_regular
from noisin.errors import Unavailable
from noisin.experiments.sweep.definition import Sweep, SweepTask
from noisin.experiments.sweep.halving import Halving
from noisin.experiments.sweep.outcome import DIGITS, Outcome, all_folders, outcome
from noisin.experiments.sweep.space import Distribution, Search, is_whole
from noisin.experiments.sweep.standing import Standing

HEARTBEAT, GRACE = 10, 60  # seconds: for workers on other machines, whose processes are not visible
TASK, WORKER, REFUSED = "task", "worker", "refused"  # what a trial is labelled with
PRODUCTS = "products"  # and the study


class Ledger:
    """Which tasks are open, which are running, and which have ended.

    Args:
        sweep: the sweep.
        out: the folder of all sweeps.
        storage: the address of the study's database.
        session: identifies the command that is running.
    """

    def __init__(self, sweep: Sweep, out: Path, storage: str, session: str) -> None:
        self.sweep, self.out, self.session = sweep, out, session
        self.storage = storage
        self.study = _open(sweep, storage)
        self._over: dict[int, Standing] = {}

    def survey(self) -> list[Standing]:
        """The state of all tasks."""
        folders = all_folders(self.out)
        trials = self._trials() if self.sweep.search is not None else {}
        return [self._standing(n, trials.get(n, ()), folders) for n in range(self.sweep.count)]

    def next(self) -> FrozenTrial | None:
        """The trial that Optuna hands out next, if any is left. The caller holds the lock."""
        waiting = self._waiting()
        if not waiting:
            self.recover()
            waiting = self._waiting()
        return waiting[0] if waiting else None

    def recover(self) -> None:
        """Of the tasks that no worker is running, enqueue the open and enter the ended ones.

        The caller holds the lock.
        """
        with asking(self.storage), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what Optuna calls experimental
            optuna.storages.fail_stale_trials(self.study)  # else only when a trial begins
        folders, trials = all_folders(self.out), self._trials()
        for number in range(self.sweep.count):
            mine = trials.get(number, [])
            standing = self._standing(number, mine, folders)
            states = {trial.state for trial in mine}
            known = standing.is_over and states & {TrialState.COMPLETE, TrialState.PRUNED}
            # The worker of a task reports it to the study, a moment after the run has ended in its
            # folder. If this process reported it too, a search would learn from it twice.
            if known or TrialState.WAITING in states or not self._has_no_worker(mine):
                continue
            if standing.is_over:
                self._enter(number, mine, standing)
            else:
                self._add(_again(number, mine, TrialState.WAITING))

    def products(self, choose: Callable[[], str]) -> str:
        """The libraries of the products of all runs: the choice of the first worker.

        The caller holds the lock.
        """
        with asking(self.storage):
            if PRODUCTS not in self.study.user_attrs:
                self.study.set_user_attr(PRODUCTS, choose())
            return str(self.study.user_attrs[PRODUCTS])

    def refuse(self, trial: optuna.Trial, message: str) -> None:
        """Note that the settings which a search has chosen are invalid."""
        with asking(self.storage):
            trial.set_user_attr(REFUSED, message)

    def _enter(self, number: int, trials: Sequence[FrozenTrial], standing: Standing) -> None:
        """Report an ended task to the study, so that a search can learn from it."""
        if any(end.state == "failed" for end in standing.outcomes):
            return
        complete = all(end.state == "complete" for end in standing.outcomes)
        state = TrialState.COMPLETE if complete else TrialState.PRUNED
        value = fmean(end.value for end in standing.outcomes) if complete else None
        self._add(_again(number, trials, state, value))

    def _has_no_worker(self, trials: Iterable[FrozenTrial]) -> bool:
        """Whether no worker is running any of these; trials of dead workers are marked failed."""
        running = [trial for trial in trials if trial.state is TrialState.RUNNING]
        if any(_is_alive(trial) for trial in running):
            return False
        with asking(self.storage):
            for trial in running:
                self.study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
        return True

    def _add(self, trial: FrozenTrial) -> None:
        with asking(self.storage):
            self.study.add_trial(trial)

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
        if standing.is_over:
            self._over[number] = standing
        return standing

    def _task(self, number: int, trials: Sequence[FrozenTrial]) -> SweepTask | None:
        if self.sweep.search is None:
            return self.sweep.tasks[number]
        space = set(self.sweep.search.space)
        chosen = [trial.params for trial in trials if set(trial.params) == space]
        return self.sweep.searched(chosen[-1]) if chosen else None

    def _trials(self) -> dict[int, list[FrozenTrial]]:
        """The trials of each task, in the order of their numbers."""
        found: dict[int, list[FrozenTrial]] = defaultdict(list)
        with asking(self.storage):
            trials = self.study.get_trials(deepcopy=False)
        for trial in trials:
            if TASK in trial.user_attrs:
                found[trial.user_attrs[TASK]].append(trial)
        return found

    def _waiting(self) -> list[FrozenTrial]:
        with asking(self.storage):
            return self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,))


def suggest(trial: optuna.Trial, search: Search) -> dict[str, Any]:
    """The values that the sampler chooses for a trial; a retried trial keeps its values."""
    return {name: _suggest(trial, name, given) for name, given in search.space.items()}


def _suggest(trial: optuna.Trial, name: str, given: Distribution) -> Any:
    if given.choices is not None:
        return trial.suggest_categorical(name, given.choices)
    assert given.low is not None
    assert given.high is not None
    if is_whole(name):
        low, high, step = int(given.low), int(given.high), int(given.step or 1)
        return trial.suggest_int(name, low, high, log=given.log, step=step)
    return trial.suggest_float(name, given.low, given.high, log=given.log, step=given.step)


def sampler(search: Search | None, number: int) -> BaseSampler:
    """The sampler of one trial, with the trial's own seed, whichever process draws."""
    if search is None:
        return RandomSampler(seed=0)
    seed = (search.seed * 1_000_003 + number) % 2**32
    if search.sampler == "random":
        return RandomSampler(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what Optuna calls experimental
        return TPESampler(seed=seed, constant_liar=True)  # avoids what other workers are trying


def here() -> list[Any]:
    """This process, as a trial is labelled with it."""
    return [socket.gethostname(), os.getpid()]


def _is_alive(trial: FrozenTrial) -> bool:
    """Whether the worker of a trial is alive, as far as can be seen from this machine."""
    host, pid = trial.user_attrs.get(WORKER, (None, None))
    if host != socket.gethostname():
        return host is not None  # the heartbeat decides
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _again(
    number: int, trials: Sequence[FrozenTrial], state: TrialState, value: float | None = None
) -> FrozenTrial:
    """A copy of the newest trial of a task, with its values and reports."""
    newest = trials[-1] if trials else None
    return optuna.create_trial(
        state=state,
        value=value,
        params=newest.params if newest else None,
        distributions=newest.distributions if newest else None,
        intermediate_values=newest.intermediate_values if newest else None,
        user_attrs={TASK: number},
    )


def _open(sweep: Sweep, storage: str) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    waiting = {"connect_args": {"timeout": 60}} if storage.startswith("sqlite") else {}
    with asking(storage), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what Optuna calls experimental
        _check_file(storage)
        database = RDBStorage(storage, waiting, heartbeat_interval=HEARTBEAT, grace_period=GRACE)
        return optuna.create_study(
            storage=database,
            study_name=f"{sweep.name}-{sweep.digest[:8]}",
            direction="minimize",
            sampler=sampler(sweep.search, 0),
            pruner=Halving(sweep.pruning) if sweep.pruning else optuna.pruners.NopPruner(),
            load_if_exists=True,
        )


def _check_file(storage: str) -> None:
    """SQLite would wait for the other end of a FIFO."""
    place = storage.removeprefix("sqlite:///")
    if place != storage and os.path.exists(place):
        open_regular(place).close()


@contextmanager
def asking(storage: str) -> Iterator[None]:
    """Name the database that cannot be used, and state that the runs are not lost with it."""
    try:
        yield
    except Exception as error:  # of SQLAlchemy and the driver beneath it, each with its own
        cause = error.__cause__ or error  # Optuna's own message is about commits
        what = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
        raise Unavailable(
            f"sweep: the database {_shown(storage)} cannot be used: {what}. If it is damaged, move "
            f"it away: the runs themselves are in their folders. Otherwise see --storage."
        ) from None


def _shown(storage: str) -> str:
    """The address of a database, without the password."""
    return re.sub(r"(?<=:)[^:/@]*(?=@)", "***", storage)
