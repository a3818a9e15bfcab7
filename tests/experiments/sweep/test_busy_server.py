"""A server that is busy when a command or a worker starts: it waits, as for one that restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest
from sqlalchemy import exc

from noisin.errors import Unavailable
from noisin.experiments.sweep import database
from noisin.experiments.sweep.database import disconnect, open_database
from tests.postgres import PostgresServer, postgres_server

BUSY = [
    "FATAL:  the database system is starting up",
    "FATAL:  the database system is not yet accepting connections",
    "FATAL:  the database system is not accepting connections",
    "FATAL:  sorry, too many clients already",
    "FATAL:  too many connections for role",
    "FATAL:  remaining connection slots are reserved for non-replication superuser connections",
    "connection timeout expired",
]
WRONG = ["FATAL:  password authentication failed for user", 'FATAL:  database "x" does not exist']


def failed(error: psycopg.Error) -> Exception:
    return exc.OperationalError("", {}, error)


@pytest.mark.parametrize("said", BUSY + WRONG)
def test_which_servers_are_worth_waiting_for(said: str) -> None:
    assert database._is_busy(failed(psycopg.OperationalError(said))) is (said in BUSY)


def test_a_server_that_speaks_another_language() -> None:
    """Where the driver gives a code, the words do not matter."""
    assert database._is_busy(failed(psycopg.errors.CannotConnectNow("Datenbank startet")))
    assert database._is_busy(failed(psycopg.errors.TooManyConnections("zu viele")))
    assert not database._is_busy(failed(psycopg.errors.InvalidPassword("falsch")))


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        server.stop()
        server.start("-c max_connections=6")
        yield server


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_all_connections_are_in_use(server: PostgresServer) -> None:
    address = server.secret_address.replace("+psycopg", "")
    with ExitStack() as held:
        for _ in range(6):
            held.enter_context(psycopg.connect(address))
        with pytest.raises(Unavailable, match="too many clients"):
            open_database(server.secret_address, 0.5)
        timer = threading.Timer(3.0, held.pop_all().close)
        timer.start()
        began = time.monotonic()
        disconnect(open_database(server.secret_address, 60.0).engine)
        timer.join()
    assert time.monotonic() - began > 2


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_server_that_recovers(server: PostgresServer) -> None:
    """Killed, and started again while the command starts."""
    for _ in range(3):
        server.kill()
        started = threading.Thread(target=server.start)
        started.start()
        try:
            disconnect(open_database(server.secret_address, 60.0).engine)
        finally:
            started.join()
