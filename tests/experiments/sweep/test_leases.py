"""Leases: one holder at a time, and only the newest can end a task. On both kinds of database."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

from noisin.errors import InvalidValue, Unavailable
from noisin.experiments.sweep.database import LeaseLost, open_database
from noisin.experiments.sweep.leases import Leases
from tests.postgres import PASSWORD, PostgresServer, postgres_server
from tests.training.toy import wait_for


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sqlalchemy.Engine]:
    if request.param == "sqlite":
        address = f"sqlite:///{tmp_path / 'study.db'}"
    else:
        address = request.getfixturevalue("server").secret_address
    database = open_database(address, patience=20)
    yield database.engine
    database.engine.dispose()


def leases(engine: sqlalchemy.Engine, name: str, lease: float = 60.0) -> Leases:
    """Those of one process; the study is that of the test."""
    study = f"{engine.url.database}-{threading.get_native_id()}-{time.monotonic_ns()}"
    return Leases(engine, study, f"{name} pid:[1] 1", name, lease)


def other(mine: Leases, name: str) -> Leases:
    return Leases(mine.engine, mine.study, f"{name} pid:[1] 2", name, mine.lease)


def test_a_task_has_one_holder(engine: sqlalchemy.Engine) -> None:
    a = leases(engine, "a")
    b = other(a, "b")
    assert a.is_over(3, "s"), "no tasks"
    a.add(dict.fromkeys(range(3)))
    b.add(dict.fromkeys(range(4)))
    assert (a.count(), a.is_over(3, "s")) == (4, False)
    taken = [found for taker in (a, b, a, b) if (found := taker.take(3, "s"))]
    assert [(lease.task, lease.fence) for lease in taken] == [(0, 1), (1, 1), (2, 1)]
    assert b.take_task(0) is None
    taken[1].release()
    assert [(row.task, row.alive) for row in a.rows()] == [
        (0, True),
        (1, False),
        (2, True),
        (3, False),
    ]
    again = a.take(3, "s")
    assert again is not None
    assert (again.task, again.fence) == (1, 2)


def test_only_the_newest_lease_ends_a_task(engine: sqlalchemy.Engine) -> None:
    """The first holder is cut off, its lease expires, another takes the task; then it is back."""
    a = leases(engine, "a")
    b = other(a, "b")
    a.add({0: None})
    old = a.take(1, "s")
    assert old is not None
    assert b.take(1, "s") is None, "not before it expires"
    old._renewed -= 100  # the clock of the process
    a.expire(a.rows()[0])  # and that of the database
    new = b.take(1, "s")
    assert new is not None
    assert new.fence == old.fence + 1
    for refused in (old.check, lambda: old.end("complete"), lambda: old.set_trial(7)):
        with pytest.raises(LeaseLost):
            refused()
    old.release()
    assert not a.is_mine(0)
    new._renewed -= 100
    b.expire(b.rows()[0])
    new.check()  # it has expired too, but nobody has taken the task
    assert b.rows()[0].alive
    new.end("complete", {"value": 1.5})
    with pytest.raises(LeaseLost):
        old.end("complete", {"value": 2.5})
    with pytest.raises(LeaseLost):
        new.end("complete", {"value": 3.5})
    (row,) = b.rows(ended_after=0.0)
    assert (row.state, row.result, row.place, row.fence) == ("complete", {"value": 1.5}, "b", 2)
    assert b.is_over(1, "s")
    assert b.take(1, "s") is None
    assert b.rows(ended_after=row.ended) == []


@pytest.mark.long
def test_a_lease_is_renewed_while_it_is_entered(engine: sqlalchemy.Engine) -> None:
    a = leases(engine, "a", lease=2.0)
    b = other(a, "b")
    a.add({0: None})
    mine = a.take(1, "s")
    assert mine is not None
    with mine:
        time.sleep(2.5)
        assert b.take(1, "s") is None
        mine.check()
    assert b.take(1, "s") is None
    wait_for(lambda: b.take(1, "s") is not None)


def test_what_failed_is_taken_by_another_command_only(engine: sqlalchemy.Engine) -> None:
    a = leases(engine, "a")
    a.add({0: None})
    lease = a.take(1, "monday")
    assert lease is not None
    lease.end("failed", session="monday")
    assert (a.is_over(1, "monday"), a.take(1, "monday")) == (True, None)
    assert not a.is_over(1, "tuesday")
    assert a.take(1, "tuesday") is not None


def test_what_fails_is_tried_once_by_each_command(engine: sqlalchemy.Engine) -> None:
    """Also if several run at once: not in turns for ever."""
    a = leases(engine, "a")
    a.add({0: None})
    taken = []
    for session in ("monday", "tuesday") * 3:
        if (lease := a.take(1, session)) is not None:
            lease.end("failed", session=session)
            taken.append((session, lease.fence))
    assert taken == [("monday", 1), ("tuesday", 2)]
    (row,) = a.rows()
    assert [row.failed_in(day) for day in ("monday", "tuesday", "friday")] == [True, True, False]
    for day in range(30):
        again = a.take(1, f"{day}")
        assert again is not None
        again.end("failed", session=f"{day}")
    assert len(a.rows()[0].session) <= 256


def test_many_threads_take_each_task_once(engine: sqlalchemy.Engine) -> None:
    a = leases(engine, "a")
    a.add(dict.fromkeys(range(12)))
    taken: list[int] = []

    def take() -> None:
        own = other(a, "b")
        while (lease := own.take(12, "s")) is not None:
            taken.append(lease.task)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(12))


def test_the_first_choice_is_that_of_all(engine: sqlalchemy.Engine) -> None:
    a = leases(engine, "a")
    assert [a.agree(lambda: "x"), other(a, "b").agree(lambda: "y")] == ["x", "x"]


def test_a_server_that_is_killed_and_started_again(server: PostgresServer) -> None:
    """Queries wait for it, and a lease that expired meanwhile is still that of its holder."""
    database = open_database(server.secret_address, patience=30)
    a = leases(database.engine, "a", lease=0.5)
    a.add({0: None})
    mine = a.take(1, "s")
    assert mine is not None
    with mine:
        server.kill()
        again = threading.Timer(1.0, server.start)
        again.start()
        assert a.count() == 1
        again.join()
        mine.check()
        mine.end("complete")
    database.engine.dispose()


def test_a_server_that_is_not_there(server: PostgresServer) -> None:
    gone = server.secret_address.replace(f":{server.port}/", ":1/")
    with pytest.raises(Unavailable, match=r"noisin:\*\*\*@127.0.0.1:1/sweeps cannot be used") as e:
        open_database(gone)
    assert PASSWORD not in str(e.value)
    wrong = server.secret_address.replace(PASSWORD, "wrong-password")
    with pytest.raises(Unavailable, match="password authentication failed") as e:
        open_database(wrong)
    assert "wrong-password" not in str(e.value)


def test_other_databases_are_refused() -> None:
    with pytest.raises(InvalidValue, match="expected an address that starts with postgresql"):
        open_database("mysql+pymysql://host/x")
