"""A database that goes away: one patience for all, and training continues or is saved."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import exc

from noisin.errors import Unavailable
from noisin.experiments.sweep import database
from noisin.experiments.sweep.database import LeaseLost, insisting, open_database
from noisin.experiments.sweep.leases import Leases
from noisin.experiments.sweep.workers import WorkerPool
from noisin.training.runtime.signals import Flag


class Clock:
    """A time that passes only while somebody sleeps."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Away(Exception):
    """What a driver raises."""


class Server:
    """A dialect of SQLAlchemy whose server is away."""

    loaded_dbapi = SimpleNamespace(OperationalError=Away)
    attempts, is_back = 0, False

    def connect(self) -> str:
        self.attempts += 1
        if not self.is_back:
            raise Away
        return "connection"


def test_a_query_waits_for_one_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, server = Clock(), Server()
    monkeypatch.setattr(database, "time", clock)
    connect = database._patient_connect(600.0)

    def query() -> Any:
        try:
            return connect(cast("Any", server), None, [], {})
        except Away as error:
            raise exc.OperationalError("", {}, error) from error

    with pytest.raises(exc.OperationalError):
        insisting(query)
    assert 590 < clock.now - 1000 < 610
    server.attempts = 0
    with pytest.raises(exc.OperationalError):
        insisting(query)
    assert server.attempts == database.ATTEMPTS, "the next query does not wait again"
    server.is_back = True
    assert insisting(query) == "connection"
    server.is_back, began = False, clock.now
    with pytest.raises(exc.OperationalError):
        insisting(query)
    assert 590 < clock.now - began < 610, "the next time that it goes away"


def test_training_continues_while_a_lease_cannot_be_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread waits for the server. What it finds then decides."""
    engine = open_database(f"sqlite:///{tmp_path / 'study.db'}").engine
    leases = Leases(engine, "study", "a pid:[1] 1", "a")
    leases.add({0: None})
    lease = leases.take(1, "s")
    assert lease is not None
    waiting, back = threading.Event(), threading.Event()

    def renew(*_: Any) -> bool:
        waiting.set()
        return not back.wait(60)

    monkeypatch.setattr(leases, "renew", renew)
    thread = threading.Thread(target=lease._renew)
    thread.start()
    assert waiting.wait(60)
    lease._renewed -= 100
    lease.check()
    back.set()
    thread.join()
    with pytest.raises(LeaseLost):
        lease.check()
    engine.dispose()


class Trains:
    """A worker that saves its run when it is told to stop."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {}
        self.did: list[str] = []

    def poll(self) -> int | None:
        return 143 if "saved" in self.did else None

    def stop(self) -> None:
        self.did.append("saved")

    def kill(self) -> None:
        self.did.append("killed")

    def close(self) -> None: ...


def test_the_workers_save_when_the_command_gives_up(tmp_path: Path) -> None:
    """Its own query of the database fails first."""
    worker = Trains()

    def survey() -> None:
        raise Unavailable("the database cannot be used")

    job = SimpleNamespace(out=tmp_path, sweep=SimpleNamespace(name="toy"))
    engine, ledger = SimpleNamespace(start=lambda *_: worker), SimpleNamespace(survey=survey)
    told: Any = (job, ledger, 1, lambda *_: None, lambda _: None, engine)
    with pytest.raises(Unavailable):
        WorkerPool(*told).work(Flag())
    assert worker.did == ["saved", "killed"]
