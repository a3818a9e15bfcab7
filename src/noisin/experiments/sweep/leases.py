"""Leases: who may work on a task, decided by the database and its clock.

Each task of a study is a row. To take a task is to increase its ``fence`` and to become its
``holder`` until ``expires``, in one statement; the holder renews the lease while it works. A worker
that was thought dead has an old fence: it can neither renew its lease nor complete the task, so a
task is completed once, whatever a machine that was cut off from the others does meanwhile.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite

from noisin._util.files import sha256
from noisin.experiments.sweep.database import (
    ATTEMPTS,
    LeaseLost,
    disconnect,
    insisting,
)

LEASE = 60.0  # seconds without a sign of life after which others take a task over
RENEWALS = 4  # in that time
PATIENCE = 600.0  # seconds that a worker waits for a database that cannot be reached
STUDY = -1  # the task number of the row about the study itself
MARK, KEPT = 12, 19  # digits that identify a session, and how many sessions a task remembers

State = Literal["open", "complete", "diverged", "pruned", "failed", "refused"]

_INSERT: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_CLOCK = {
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
    "postgresql": "extract(epoch from clock_timestamp())::double precision",
}
_metadata = sql.MetaData()
_TABLE = sql.Table(
    "noisin_leases",
    _metadata,
    sql.Column("study", sql.String(128), primary_key=True),
    sql.Column("task", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("state", sql.String(16), nullable=False, default="open"),
    sql.Column("fence", sql.Integer, nullable=False, default=0),  # how often it was taken
    sql.Column("expires", sql.Double, nullable=False, default=0.0),
    sql.Column("holder", sql.String(256), nullable=False, default=""),
    sql.Column("place", sql.String(256), nullable=False, default=""),  # of the holder's folder
    sql.Column("trial", sql.Integer),  # the newest trial of the task
    sql.Column("session", sql.String(256), nullable=False, default=""),  # marks: where it failed
    sql.Column("ended", sql.Double, nullable=False, default=0.0),
    sql.Column("result", sql.Text, nullable=False, default=""),  # JSON
    sql.Index("noisin_leases_open", "study", "state", "fence", "task"),
)
_c = _TABLE.c


@dataclass(frozen=True)
class LeaseRow:
    """What the database knows about a task; times are those of its clock."""

    task: int
    state: State
    fence: int
    holder: str
    place: str
    trial: int | None
    session: str  # the marks of all in which it failed
    ended: float
    result: Mapping[str, Any]
    alive: bool

    def failed_in(self, session: str) -> bool:
        """Whether the task has failed in this session."""
        return _mark(session) in self.session.split()


class Leases:
    """The leases of one study.

    Args:
        engine: the database.
        study: the name of the study.
        holder: identifies this process.
        place: identifies the folder that it writes to.
        lease: seconds after which a lease that is not renewed expires.
    """

    def __init__(
        self, engine: sql.Engine, study: str, holder: str, place: str, lease: float = LEASE
    ) -> None:
        self.engine, self.study, self.holder, self.place = engine, study, holder, place
        self.lease = lease
        self._now = sql.literal_column(_CLOCK[engine.dialect.name], sql.Double)
        self._insert = _INSERT[engine.dialect.name]
        self._create()

    def _create(self) -> None:
        for left in reversed(range(ATTEMPTS)):
            try:
                return _metadata.create_all(self.engine)
            except (sql.exc.IntegrityError, sql.exc.ProgrammingError, sql.exc.OperationalError):
                if not left:  # it is not that another process creates the table
                    raise
                time.sleep(random.uniform(0.1, 0.5))
        return None

    # All tasks

    def add(self, trials: Mapping[int, int | None]) -> None:
        """Add tasks, by number, with their newest trial; a task that exists stays as it is."""
        rows = [{"study": self.study, "task": n, "trial": t} for n, t in trials.items()]
        if rows:
            statement = self._insert(_TABLE).on_conflict_do_nothing()
            self._retried(lambda connection: connection.execute(statement, rows))

    def rows(self, ended_after: float | None = None) -> list[LeaseRow]:
        """All tasks by number, or only those that ended after a time of the database's clock."""
        query = sql.select(_TABLE, (_c.expires > self._now).label("alive")).where(
            _c.study == self.study, _c.task > STUDY
        )
        if ended_after is not None:
            query = query.where(_c.state != "open", _c.ended > ended_after)
        found = self._retried(lambda connection: connection.execute(query).mappings().all())
        return sorted(map(_row, found), key=lambda row: row.task)

    def count(self) -> int:
        """The number of tasks that were added."""
        query = sql.select(sql.func.count()).where(_c.study == self.study, _c.task > STUDY)
        return int(self._retried(lambda connection: connection.execute(query).scalar_one()))

    def is_over(self, count: int, session: str) -> bool:
        """Whether the first ``count`` tasks have ended. What failed counts where it failed."""
        query = sql.select(_c.task).where(*self._left(count, session)).limit(1)
        return self._retried(lambda connection: connection.execute(query).first()) is None

    def agree(self, choose: Callable[[], str]) -> str:
        """The value that the first process has chosen, for all processes of the study."""
        query = sql.select(_c.result).where(_c.study == self.study, _c.task == STUDY)
        found = self._retried(lambda connection: connection.execute(query).scalar())
        if found is not None:
            return str(found)
        row = {"study": self.study, "task": STUDY, "state": "agreed", "result": choose()}
        statement = self._insert(_TABLE).values(**row).on_conflict_do_nothing()
        self._retried(lambda connection: connection.execute(statement))
        return self.agree(choose)

    def _left(self, count: int, session: str) -> Sequence[sql.ColumnElement[bool]]:
        again = sql.and_(_c.state == "failed", _c.session.not_like(f"%{_mark(session)}%"))
        of_sweep = (_c.study == self.study, _c.task > STUDY, _c.task < count)
        return *of_sweep, sql.or_(_c.state == "open", again)

    # One task

    def take(self, count: int, session: str) -> Lease | None:
        """Take the task that was taken least often, if one is free."""
        free = (*self._left(count, session), _c.expires <= self._now)
        chosen = sql.select(_c.task).where(*free).order_by(_c.fence, _c.task).limit(1)
        return self._claim(chosen.with_for_update(skip_locked=True).scalar_subquery())

    def take_task(self, task: int, states: Iterable[State] = ("open", "failed")) -> Lease | None:
        """Take this task, if it is free and in one of these states."""
        chosen = sql.select(_c.task).where(
            _c.study == self.study,
            _c.task == task,
            _c.expires <= self._now,
            _c.state.in_(tuple(states)),
        )
        return self._claim(chosen.with_for_update(skip_locked=True).scalar_subquery())

    def _claim(self, chosen: sql.ScalarSelect[int]) -> Lease | None:
        statement = (
            sql.update(_TABLE)
            .where(_c.study == self.study, _c.task == chosen)
            .values(
                fence=_c.fence + 1,
                expires=self._now + self.lease,
                holder=self.holder,
                place=self.place,
                state="open",
            )
            .returning(_c.task, _c.fence, _c.trial, _c.session)
        )
        found = self._retried(lambda connection: connection.execute(statement).one_or_none())
        return None if found is None else Lease(self, *found)

    def expire(self, row: LeaseRow) -> None:
        """End the lease of a process that is known to have died."""
        self.update(row.task, row.fence, expires=0.0)

    def update(self, task: int, fence: int, **values: Any) -> bool:
        """Change a task whose fence is still this one and which is open; whether it was."""
        statement = (
            sql.update(_TABLE)
            .where(_c.study == self.study, _c.task == task, _c.fence == fence, _c.state == "open")
            .values(**values)
        )
        changed = self._retried(lambda connection: connection.execute(statement).rowcount)
        return bool(changed == 1)

    def renew(self, task: int, fence: int, seconds: float) -> bool:
        """Let a lease expire so many seconds from now."""
        return self.update(task, fence, expires=self._now + seconds)

    def end(self, task: int, fence: int, state: State, result: Any, session: str) -> bool:
        """End a task, if its fence is still this one.

        Args:
            session: the marks of the sessions in which it has failed.
        """
        values = {"state": state, "result": json.dumps(result), "session": session}
        return self.update(task, fence, **values, ended=self._now, expires=0.0)

    def is_mine(self, task: int) -> bool:
        """Whether the newest holder writes to the same folder as this process."""
        query = sql.select(_c.place).where(_c.study == self.study, _c.task == task)
        return bool(self._retried(lambda c: c.execute(query).scalar()) == self.place)

    def _retried(self, query: Callable[[sql.Connection], Any]) -> Any:
        """Run a query in a transaction, again if the server went away in the middle of it.

        To claim, renew or end twice is harmless, because the fence decides.
        """

        def once() -> Any:
            with self.engine.begin() as connection:
                return query(connection)

        return insisting(once)


class Lease:
    """The right to work on a task, renewed by a thread while the context is entered.

    Attributes:
        task, fence: the task, and how often it was taken, with this time.
        before: the newest trial of the task before.
        failed: the marks of the sessions in which the task has failed before.
    """

    def __init__(
        self, leases: Leases, task: int, fence: int, before: int | None, failed: str = ""
    ) -> None:
        self.leases, self.task, self.fence, self.before = leases, task, fence, before
        self.failed = failed
        self._renewed = time.monotonic()
        self._is_lost = False
        self._renewing = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise :class:`LeaseLost` if another worker has taken the task over.

        While the thread waits for a database that cannot be reached, it is not known, and training
        continues: only the newest fence can end the task.
        """
        if time.monotonic() - self._renewed > self.leases.lease:  # this process was stopped
            self._renew()
        if self._is_lost:
            raise LeaseLost

    def set_trial(self, number: int) -> None:
        """Record the trial that stands for this task now."""
        if not self.leases.update(self.task, self.fence, trial=number):
            raise LeaseLost

    def end(self, state: State, result: Any = None, session: str = "") -> None:
        """End the task, or raise :class:`LeaseLost`.

        Each session tries once what has failed in others, so all of them are remembered.
        """
        marks = [mark for mark in self.failed.split() if mark != _mark(session)]
        if state == "failed":
            marks.append(_mark(session))
        if not self.leases.end(self.task, self.fence, state, result, " ".join(marks[-KEPT:])):
            raise LeaseLost

    def release(self, after: float = 0.0) -> None:
        """Return the task to the queue, for others to take after so many seconds."""
        self.leases.renew(self.task, self.fence, after)

    def _renew(self) -> None:
        """Renew the lease, unless another thread is doing so."""
        if not self._renewing.acquire(blocking=False):
            return
        try:
            began = time.monotonic()
            if self.leases.renew(self.task, self.fence, self.leases.lease):
                self._renewed = began
            else:
                self._is_lost = True
        finally:
            self._renewing.release()

    def _keep(self) -> None:
        while not self._is_lost and not self._stop.wait(self.leases.lease / RENEWALS):
            with suppress(sql.exc.SQLAlchemyError):  # still ours, unless taken by others: `check`
                self._renew()
            disconnect(self.leases.engine)


def _mark(session: str) -> str:
    """A short name of a session, of which a column has room for many."""
    return sha256(session.encode())[:MARK]


def _row(found: Mapping[str, Any]) -> LeaseRow:
    values = {name: found[name] for name in LeaseRow.__dataclass_fields__}
    return LeaseRow(**values | {"result": json.loads(found["result"] or "{}") or {}})
