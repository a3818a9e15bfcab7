"""``noisin sweep`` on several nodes: PostgreSQL, host names and folders of their own, and deaths.

A node is a group of processes in a UTS namespace, with its own host name, ``--out`` and cache. What
is tested once here is repeated with more points and deaths where ``NOISIN_PRODUCTS=all``.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noisin import training
from noisin.experiments.collection import Collection, collect
from noisin.experiments.sweep import read
from tests.cli.run import in_process
from tests.cli.test_sweep import at_work, kill, write
from tests.pairwise import stress_only
from tests.postgres import PASSWORD, PostgresServer, postgres_server
from tests.training.toy import result, wait_for

HOSTNAME = 'hostname "$1" && shift && exec "$@"'
POINTS = int(os.environ.get("NOISIN_SWEEP_POINTS", "12"))
KINDS = ("worker", "node", "driver", "database")  # of deaths
LEASE = 4.0  # seconds, instead of 60
EPOCHS = 60  # some seconds: nodes start in less, so that all are at work together
needs_namespaces = pytest.mark.skipif(
    subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False).returncode != 0,
    reason="host names need the right to make a UTS namespace",
)


@pytest.fixture(autouse=True)
def _nothing_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISIN_KERNEL", "eager")
    monkeypatch.setenv("NOISIN_LEASE", str(LEASE))
    monkeypatch.setenv("PGPASSWORD", PASSWORD)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


class Node:
    """``noisin sweep`` on a machine of its own, as far as host names and folders go."""

    def __init__(self, name: str, folder: Path, *arguments: str, **env: str) -> None:
        self.folder, self.out = folder / name, folder / name / "out"
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "noisin", "sweep", *arguments]
        if "--out" in arguments:  # a URL: the folder of the machine is in the cache
            env |= {"NOISIN_CACHE": str(self.folder / "cache"), "CC": "false"}  # an empty one
        else:
            command += ["--out", str(self.out)]
        with (self.folder / "stdout").open("ab") as out, (self.folder / "stderr").open("ab") as err:
            self.process = subprocess.Popen(
                ["unshare", "--uts", "sh", "-c", HOSTNAME, "-", name, *command],
                stdout=out,
                stderr=err,
                env={**os.environ, **env},
            )

    @property
    def said(self) -> str:
        return (self.folder / "stderr").read_text()

    def workers(self) -> list[int]:
        with suppress(OSError):
            pid = self.process.pid
            return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return []

    def kill(self) -> None:
        """All processes at once, as if the machine had lost power."""
        for pid in (self.process.pid, *self.workers()):
            kill(pid)
        self.process.wait()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()


def complete(*folders: Path) -> Collection:
    return Collection(run for f in folders if f.is_dir() for run in collect(f) if run.complete)


def sql(server: PostgresServer, query: str) -> list[Any]:
    with psycopg.connect(server.secret_address.replace("+psycopg", "")) as connection:
        return connection.execute(query).fetchall()


def check_each_once(runs: Collection, path: str, folder: Path, dice: random.Random) -> None:
    """One record for each point, and some of them made again, bit for bit."""
    tasks = read(path).tasks
    wanted = {task.runs[0].digest for task in tasks}
    assert Counter(run.config.hash() for run in runs) == Counter(wanted)
    for run in dice.sample(list(runs), min(2, len(runs))):
        training.run(run.config, folder / "again" / run.folder.name)
        assert result(run.folder) == result(folder / "again" / run.folder.name)


def check_no_secret(folder: Path) -> None:
    """In no file, and in the arguments of no process."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "workers.log" for path in files)
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []


def arguments_of_all() -> bytes:
    found = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += path.read_bytes()
    return found


@pytest.mark.long
@needs_namespaces
def test_a_node_dies_and_another_makes_its_runs(
    server: PostgresServer, text: Path, tmp_path: Path, capsys: Any
) -> None:
    """Two nodes without a common folder; all processes of one are killed in the middle."""
    path = write(
        tmp_path / "nodes.toml", text, "[grid]\ntrain.lr = [1.0, 2.0]\nthreads = [1]", EPOCHS
    )
    arguments = (path, "--storage", server.address)
    with Node("node-a", tmp_path, *arguments) as a, Node("node-b", tmp_path, *arguments) as b:
        wait_for(lambda: bool(at_work(a.out)) and bool(at_work(b.out)), 240)
        listed = arguments_of_all()
        holders = sql(
            server, "SELECT split_part(holder, ' ', 1) FROM noisin_leases WHERE task >= 0"
        )
        a.kill()
        assert b.process.wait(240) == 0, b.said
    assert b"noisin.experiments.sweep.process" in listed
    assert PASSWORD.encode() not in listed
    assert sorted(holders) == [("node-a",), ("node-b",)]
    assert "2/2 done" in b.said
    assert in_process("collect", str(a.out), str(b.out), "--out", str(tmp_path / "all")) == 0
    assert "2 copied" in capsys.readouterr().out
    check_each_once(complete(tmp_path / "all"), path, tmp_path, random.Random(0))
    assert in_process("sweep", *arguments, "--out", str(tmp_path / "third")) == 0, (
        "knows it is done"
    )
    assert not complete(tmp_path / "third")
    check_no_secret(tmp_path)


@pytest.mark.parametrize(
    "address", [f"postgresql://noisin:{PASSWORD}@h/db", f"postgresql://h/db?password={PASSWORD}"]
)
def test_a_password_in_the_arguments_is_refused(address: str, tmp_path: Path, capsys: Any) -> None:
    code = in_process(
        "sweep", "manual-families", "--storage", address, "--out", str(tmp_path / "x")
    )
    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1)
    assert "every user of this machine can read the arguments" in said
    assert "NOISIN_STORAGE" in said
    assert PASSWORD not in said
    assert not (tmp_path / "x").exists()


@stress_only
@needs_namespaces
def test_a_worker_that_is_stopped_for_longer_than_its_lease(
    server: PostgresServer, text: Path, tmp_path: Path
) -> None:
    """It is overtaken, continues, and does not complete the run a second time."""
    path = write(tmp_path / "stopped.toml", text, "[grid]\ntrain.lr = [1.0]\nthreads = [1]", EPOCHS)
    arguments = (path, "--storage", server.address)
    with Node("node-a", tmp_path, *arguments) as a:
        wait_for(lambda: bool(at_work(a.out)), 240)
        (worker,) = a.workers()
        os.kill(worker, signal.SIGSTOP)
        with Node("node-b", tmp_path, *arguments) as b:
            assert b.process.wait(240) == 0, b.said
        os.kill(worker, signal.SIGCONT)
        assert a.process.wait(240) == 0, a.said
    assert [len(complete(out)) for out in (a.out, b.out)] == [0, 1]
    check_each_once(complete(a.out, b.out), path, tmp_path, random.Random(0))
    query = (
        "SELECT fence, split_part(place, ' ', 1) FROM noisin_leases WHERE study LIKE 'stopped%' "
    )
    assert sql(server, f"{query} AND task >= 0") == [(2, "node-b")]


@stress_only
@needs_namespaces
@pytest.mark.parametrize("shared", ["nothing", "a URL"])
def test_workers_nodes_drivers_and_the_database_are_killed(
    shared: str, server: PostgresServer, text: Path, tmp_path: Path
) -> None:
    """Each kind of death in turn, until all points are made: one record each, the same bits."""
    lrs, dice = [round(1 + k / 10, 1) for k in range(POINTS)], random.Random(0)
    grid = f"[grid]\ntrain.lr = {lrs}\nthreads = [1]"
    path = write(tmp_path / f"{shared.replace(' ', '-')}.toml", text, grid, 2 * EPOCHS)
    arguments = [path, "--storage", server.address, "--jobs", "2"]
    bucket = tmp_path / "bucket"
    if shared == "a URL":
        arguments += ["--out", f"file://{bucket}"]
    places = [tmp_path / name / "out" for name in ("node-a", "node-b")]
    folders = [bucket] if shared == "a URL" else places
    deaths: Counter[str] = Counter()
    with ExitStack() as stack:
        nodes = {
            n: stack.enter_context(Node(n, tmp_path, *arguments)) for n in ("node-a", "node-b")
        }
        last, before = time.monotonic(), 0
        while any(node.process.poll() is None for node in nodes.values()):
            time.sleep(0.2)
            name, made = dice.choice(list(nodes)), epochs_made(tmp_path)
            # Each death is after some progress: on a slow machine, too, it comes to an end.
            if time.monotonic() - last < 5 or made <= before or not nodes[name].workers():
                continue
            die(kind := KINDS[deaths.total() % 4], nodes[name], server)
            deaths[kind] += 1
            last, before = time.monotonic(), made
            if kind in ("node", "driver"):
                nodes[name] = stack.enter_context(Node(name, tmp_path, *arguments))
        for node in nodes.values():
            assert node.process.returncode == 0, node.said
    assert min(deaths[kind] for kind in KINDS) >= 1, deaths
    check_each_once(complete(*folders), path, tmp_path, dice)
    check_no_secret(tmp_path)
    print(f"{len(lrs)} points, killed: {dict(deaths)}")


def epochs_made(folder: Path) -> int:
    """The number of epochs that nodes have recorded, repeated ones too."""
    count = 0
    for place, _, names in os.walk(folder):  # which does not mind what vanishes meanwhile
        with suppress(OSError):
            if "metrics.jsonl" in names:
                count += Path(place, "metrics.jsonl").read_bytes().count(b"\n")
    return count


def die(kind: str, node: Node, server: PostgresServer) -> None:
    if kind == "worker":
        kill(node.workers()[0])
    elif kind == "node":
        node.kill()
    elif kind == "driver":
        node.process.kill()
        node.process.wait()
    else:
        server.kill()
        time.sleep(3)
        server.start()


@stress_only
@needs_namespaces
def test_a_dead_node_is_noticed_within_90_seconds(
    server: PostgresServer, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOISIN_LEASE")
    path = write(tmp_path / "noticed.toml", text, "[grid]\ntrain.lr = [1.0]\nthreads = [1]", EPOCHS)
    arguments = (path, "--storage", server.address)
    query = "SELECT split_part(holder, ' ', 1) FROM noisin_leases WHERE study LIKE 'noticed%' "
    with Node("node-a", tmp_path, *arguments) as a, Node("node-b", tmp_path, *arguments) as b:
        wait_for(lambda: bool(at_work(a.out) or at_work(b.out)), 240)
        first, other = (a, b) if at_work(a.out) else (b, a)
        wait_for(lambda: bool(other.workers()), 240)
        first.kill()
        began = time.monotonic()
        wait_for(lambda: sql(server, f"{query} AND task >= 0") == [(other.folder.name,)], 120)
        seconds = time.monotonic() - began
        assert other.process.wait(240) == 0, other.said
    print(f"noticed after {seconds:.0f} seconds")
    assert seconds <= 90
