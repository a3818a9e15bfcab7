"""What starts the workers of a sweep. Nothing here needs Ray, as test_ray.py does."""

from __future__ import annotations

import os
import socket
import stat
import sys
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import noisin
from noisin.errors import InvalidValue, Unavailable, Unsupported
from noisin.experiments.sweep import driver, ray_cluster
from noisin.experiments.sweep.engine import Answer, LocalEngine, Receive, RunningWorker
from noisin.experiments.sweep.ray_cluster import RayCluster
from noisin.experiments.sweep.ray_engine import WorkerActor
from noisin.experiments.sweep.worker import Job
from tests.experiments.sweep import toy


@pytest.fixture(autouse=True)
def _nothing_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISIN_KERNEL", "eager")


@pytest.mark.long
def test_the_messages_of_an_actor(text: Path, tmp_path: Path) -> None:
    """Those of the process that it starts on its node, whose folder may not exist there yet."""
    job = toy.job(toy.grid(text, 1.0, train={"epochs": 1}), tmp_path)
    log = tmp_path / "node" / "workers.log"
    actor = WorkerActor()
    first, *answers, last = actor.work(job.model_dump_json(), str(log), noisin.__version__)
    assert (first, last) == ({"started": True}, {"exit": 0, "death": "exit code 0"})
    assert {"run": "lr-1-seed-1111", "finished": 1} in answers
    assert {"over": "lr-1-seed-1111"} in answers
    assert toy.states(job.sweep, tmp_path) == ["complete"]
    assert log.exists()


def test_another_version_on_a_node(text: Path, tmp_path: Path) -> None:
    job = toy.job(toy.grid(text, 1.0), tmp_path)
    (answer,) = WorkerActor().work(job.model_dump_json(), str(tmp_path / "log"), "0.0.1")
    assert f"has noisin {noisin.__version__}, and the command" in answer["error"]


class Lost:
    """A worker that is gone as soon as it is started, as on a node that dies."""

    def __init__(self) -> None:
        self.status: Answer = {}

    def poll(self) -> int:
        return -9

    def death(self) -> str:
        return "its node is gone"

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


class Unreliable(LocalEngine):
    """Loses the first two workers, and gives the others so many threads."""

    lost = 0

    def threads(self, jobs: int) -> int:
        return 3

    def start(self, job: Job, log: Path, receive: Receive) -> RunningWorker:  # type: ignore[override]
        assert job.threads == 3
        if self.lost < 2:
            self.lost += 1
            return Lost()
        return super().start(job, log, receive)


@pytest.mark.long
def test_a_sweep_by_another_engine(text: Path, tmp_path: Path) -> None:
    """It decides about threads and starts the workers; the loop that replaces them is the same."""
    said: list[str] = []
    sweep = toy.grid(text, 1.0, train={"epochs": 1})
    engine = Unreliable()
    (standing,) = driver.run(sweep, tmp_path, jobs=1, say=said.append, engine=engine)
    assert standing.is_over
    assert said == ["a worker died (its node is gone); the sweep continues."] * 2


def test_a_new_cluster_is_closed_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its token is new, in a file of the user alone, and gone with it."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    before = dict(os.environ)
    with ExitStack() as stack:
        ray_cluster._close_to_others(stack)
        assert os.environ["RAY_AUTH_MODE"] == "token"
        assert "RAY_AUTH_TOKEN" not in os.environ
        file = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert len(file.read_text()) == 64
    assert not file.parent.exists()
    assert dict(os.environ) == before


def test_ray_that_is_imported_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(Unsupported, match="Start one by `ray start`, and pass its address"):
        RayCluster(None, print).connect()


class OldRay(ModuleType):
    """As much of Ray as is needed to be refused."""

    __version__ = "2.51.1"


class BrokenRay(ModuleType):
    """A Ray that cannot connect."""

    __version__ = "2.52.0"

    def init(self, address: str, **options: Any) -> None:
        raise ConnectionError("no answer\nand many lines more")

    def shutdown(self) -> None: ...


def test_an_old_ray_and_a_broken_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", OldRay("ray"))
    with pytest.raises(Unsupported, match=r"needs Ray 2.52 or newer.* got 2.51.1"):
        RayCluster("auto", print).connect()
    monkeypatch.setitem(sys.modules, "ray", BrokenRay("ray"))
    with pytest.raises(Unavailable, match=r"at auto cannot be used: no answer\. Check"):
        RayCluster("auto", print).connect()


def test_a_port_at_which_nothing_answers() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    with pytest.raises(Unavailable, match=f"{address} cannot be used: .*refused. Check"):
        RayCluster(address, print).connect()


@pytest.mark.parametrize("address", ["ray://head:10001", "", "head", ":1", "head:x", "head:99999"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(InvalidValue, match=f"must be HOST:PORT or auto, got '{address}'"):
        RayCluster(address, print)
