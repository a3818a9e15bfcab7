"""A server that ends a connection in the middle of a query: the sweep asks again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy

from noisin.errors import Unavailable
from noisin.experiments.sweep import Sweep, database
from noisin.experiments.sweep.database import disconnect
from noisin.experiments.sweep.ledger import Ledger
from noisin.experiments.sweep.outcome import Outcome
from tests.experiments.sweep import toy
from tests.pairwise import PRODUCTS
from tests.postgres import PostgresServer, postgres_server


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@contextmanager
def broken(server: PostgresServer, *numbers: int) -> Iterator[list[str]]:
    """End the connections of the statements of these numbers; yields all statements."""
    seen: list[str] = []
    address = server.secret_address.replace("+psycopg", "")

    def before(connection: Any, _: Any, statement: str, *__: Any) -> None:
        seen.append(statement)
        if len(seen) - 1 in numbers:
            pid = connection.connection.dbapi_connection.info.backend_pid
            with psycopg.connect(address, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 1000)", [pid])

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", before)
    try:
        yield seen
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", before)


def begin(server: PostgresServer, sweep: Sweep, out: Path) -> Ledger:
    """What a command and a worker ask before the first run, after one has died."""
    ledger = Ledger(sweep, out, server.secret_address, "first", patience=20)
    ledger.recover()
    assert ledger.products(lambda: "mkl") == "mkl"
    assert not ledger.is_over()
    ledger.survey()
    return ledger


def leave(ledger: Ledger) -> None:
    """A task that has ended, but whose folder is gone, and one whose worker is dead."""
    first, second = ledger.take(), ledger.take()
    assert first is not None
    assert second is not None
    trial = ledger.trial(first)
    first.end("diverged", {"outcomes": [Outcome("diverged").to_json()]})
    ledger.leases.expire(ledger.leases.rows()[second.task])
    assert trial.number == 0
    disconnect(ledger.leases.engine)


# Optuna does not close the connections of a storage that it could not open.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_any_statement_may_be_cut_off(server: PostgresServer, text: Path, tmp_path: Path) -> None:
    def count(n: int) -> int:
        """Of the statements with which a command begins after another one, if the n-th is cut."""
        name = {"name": f"cut-{n}"}
        sweep = toy.grid(text, 1.0, 2.0, 3.0).model_copy(update=name)
        leave(begin(server, sweep, tmp_path))
        with broken(server, n) as statements:
            ledger = begin(server, sweep, tmp_path)
        rows = ledger.leases.rows()
        disconnect(ledger.leases.engine)
        assert [(row.state, row.alive) for row in rows] == [("open", False)] * 3
        return len(statements)

    total = count(-1)
    assert total > 30
    assert all(count(n) > total for n in range(0, total, 1 if PRODUCTS else 12))


def test_a_connection_that_is_always_cut_off(
    server: PostgresServer, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks a few times, and then says what is wrong."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    ledger = begin(server, toy.grid(text, 1.0), tmp_path)
    with broken(server, *range(1000)) as statements, pytest.raises(Unavailable, match="cannot be"):
        ledger.is_over()
    assert len(statements) == database.ATTEMPTS
