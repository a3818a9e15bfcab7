"""The database of a sweep: SQLite on one machine, PostgreSQL for several.

A worker of a PostgreSQL sweep closes its connection after each group of queries, so that a thousand
workers do not need a thousand connections, and waits for a server that is restarted.
"""

from __future__ import annotations

import itertools
import os
import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from optuna.storages import RDBStorage
from sqlalchemy import Dialect, Engine, event, exc
from sqlalchemy.engine import make_url
from sqlalchemy.pool import QueuePool

from noisin._util.regular import open_regular
from noisin.errors import InvalidValue, Unavailable
from noisin.experiments.sweep.address import hidden, without_secrets

T = TypeVar("T")
KINDS = ("sqlite", "postgresql")
ATTEMPTS = 5  # at a query, and to create the tables, which others may be creating at this moment
CONNECT_TIMEOUT = 10  # seconds for one attempt to connect to a server


# PostgreSQL's codes of a server that starts or stops, and of one with no connection left.
_BUSY_CODES = ("57P01", "57P02", "57P03", "53300")
# The driver gives no code for an attempt to connect that fails, only what the server said.
_BUSY_TEXTS = (
    *("Connection refused", "Connection reset", "starting up", "shutting down", "recovery mode"),
    *("not yet accepting connections", "not accepting connections", "timeout expired"),
    *("too many clients", "too many connections", "remaining connection slots are reserved"),
    *("terminating connection", "closed the connection", "connection is lost"),
    "Can't reconnect until",
)


_RECONNECTS = "8s2b"  # SQLAlchemy's code of a transaction whose connection is gone


class LeaseLost(Exception):
    """Another worker has taken the task over."""


def open_database(storage: str, patience: float = 0.0) -> RDBStorage:
    """Optuna's storage in the database at this address; its tables are created if necessary.

    Args:
        storage: the address, as SQLAlchemy takes it.
        patience: seconds to wait for a server that cannot be reached.
    """
    with asking(storage):
        _check_file(storage)
    kind = _kind(storage)
    options: dict[str, Any] = {"connect_args": {"timeout": 60}}
    if kind == "postgresql":
        options = {"pool_size": 2, "connect_args": {"connect_timeout": CONNECT_TIMEOUT}}
    with asking(storage), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what Optuna calls experimental
        database = _created(lambda: RDBStorage(storage, options), patience)
    if kind == "postgresql":
        event.listen(database.engine, "do_connect", _patient_connect(patience))
    return database


def disconnect(engine: Engine) -> None:
    """Close the connections to a server, unless another thread is using one."""
    pool = engine.pool
    if engine.dialect.name != "sqlite" and isinstance(pool, QueuePool) and pool.checkedout() == 0:
        engine.dispose()


@contextmanager
def asking(storage: str) -> Iterator[None]:
    """Name the database that cannot be used, and state that the runs are not lost with it."""
    try:
        yield
    except LeaseLost:
        raise
    except Exception as error:  # of SQLAlchemy and the driver beneath it, each with its own
        cause = error.__cause__ or error  # Optuna's own message is about commits
        said = without_secrets(cause, storage)  # what cannot be parsed is quoted, or read otherwise
        what = said.splitlines()[0] if said else type(cause).__name__
        raise Unavailable(
            f"sweep: the database {hidden(storage)} cannot be used: {what}. If it is damaged, move "
            f"it away: the runs themselves are in their folders. Otherwise see --storage."
        ) from error


def is_broken_connection(error: BaseException) -> bool:
    """Whether a server went away during a query, so that the query may be tried again."""
    for found in _causes(error):
        if isinstance(found, exc.OperationalError | exc.InterfaceError):
            return "sqlite3" not in type(found.orig).__module__
        if isinstance(found, exc.PendingRollbackError) and found.code == _RECONNECTS:
            return True  # Optuna goes on after some errors, in the transaction that is gone
    return False


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and what it was raised from: Optuna's own are raised from SQLAlchemy's."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__


def insisting(query: Callable[[], T]) -> T:
    """The result of queries that may be made twice: again if the server went away during them."""
    for left in reversed(range(ATTEMPTS)):
        try:
            return query()
        except Exception as error:  # Optuna's are of other classes than SQLAlchemy's
            if not left or not is_broken_connection(error):
                raise
        time.sleep(random.uniform(0.1, 0.5))  # connecting waits, if it must
    raise AssertionError


def _kind(storage: str) -> str:
    with asking(storage):
        kind = make_url(storage).get_backend_name()
    if kind not in KINDS:
        raise InvalidValue(
            f"sweep: the database {hidden(storage)} cannot be used: expected an address that "
            f"starts with postgresql+psycopg:// or sqlite:///, got {kind!r}."
        )
    return kind


def _created(create: Callable[[], RDBStorage], patience: float) -> RDBStorage:
    """Create the tables, which fails if another process creates them at the same moment."""
    last = time.monotonic() + patience
    for left in itertools.count(ATTEMPTS, -1):
        try:
            return create()
        except Exception as error:  # as above
            same = (exc.IntegrityError, exc.ProgrammingError)
            races = left > 0 and any(isinstance(found, same) for found in _causes(error))
            if not races and (time.monotonic() > last or not _is_busy(error)):
                raise
        time.sleep(random.uniform(0.1, 1.0))
    raise AssertionError


def _is_busy(error: Exception) -> bool:
    """Whether a server may answer soon: it restarts, or all of its connections are in use.

    A wrong name or password is not worth waiting for.
    """
    causes = list(_causes(error))
    codes = (getattr(getattr(found, "orig", found), "sqlstate", None) for found in causes)
    said = any(text in str(found) for found in causes for text in _BUSY_TEXTS)
    return is_broken_connection(error) and (said or any(code in _BUSY_CODES for code in codes))


def _patient_connect(patience: float) -> Callable[..., Any]:
    """What SQLAlchemy calls to connect: tries again until the server was away for ``patience``.

    The time counts from the first failure to the next success, of all threads and queries: a query
    that is made several times does not wait several times.
    """
    away_since: float | None = None

    def connect(dialect: Dialect, _: Any, arguments: list[Any], options: dict[str, Any]) -> Any:
        nonlocal away_since
        pause = 0.2
        while True:
            try:
                connection = dialect.connect(*arguments, **options)
            except dialect.loaded_dbapi.OperationalError:
                now = time.monotonic()
                away_since = since = now if away_since is None else away_since
                if now + pause > since + patience:
                    raise
            else:
                away_since = None
                return connection
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, 5.0)

    return connect


def _check_file(storage: str) -> None:
    """SQLite would wait for the other end of a FIFO."""
    place = storage.removeprefix("sqlite:///")
    if place != storage and os.path.exists(place):
        open_regular(place).close()
