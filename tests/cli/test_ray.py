"""``noisin sweep --engine ray`` on a real cluster of two nodes, on the loopback interface.

A worker, a node and the command itself are killed: every point ends with one record, which equals
bit for bit that of a run that nothing happened to.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from noisin import training
from noisin.experiments.collection import collect
from tests.cli.test_sweep import at_work, kill, started, states, write
from tests.pairwise import stress_only
from tests.training.toy import result, wait_for

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs pip install 'noisin[ray]'")
EPOCHS = 12
LRS = [1.0, 1.5, 2.0]
TWO_NODES = Path(__file__).with_name("two_nodes.py")


class TwoNodes:
    """A cluster of a head without CPUs and two nodes with one each, in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.token = secrets.token_hex(32)
        file = folder / "token"
        file.touch(0o600)
        file.write_text(self.token)
        self.logs = folder / "ray"
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(file),
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # loopback
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        self.process = subprocess.Popen(
            [sys.executable, str(TWO_NODES), str(self.logs)],
            env={**os.environ, **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address, *raylets = self._answer().split()
        self.raylets = [int(pid) for pid in raylets]

    def _answer(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("nodes "):
                return line.removeprefix("nodes ")
        raise AssertionError("the cluster has not started")

    def add_node(self) -> None:
        """Start another node, in place of one that was killed."""
        assert self.process.stdin is not None
        self.process.stdin.write("add\n")
        self.process.stdin.flush()
        self.raylets.append(int(self._answer()))

    def close(self) -> None:
        self.process.communicate(timeout=60)


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    folder = Path(tempfile.mkdtemp(prefix="nr-"))  # short: paths of sockets have 107 characters
    nodes = TwoNodes(folder)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in nodes.environment.items():
            patch.setenv(name, value)
        yield nodes
    nodes.close()
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def _nothing_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISIN_KERNEL", "eager")


def parent(pid: int) -> int:
    """The parent of a process; 0 if it has ended."""
    try:
        state, number, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if state in "ZX" else int(number)


def outliving(actors: Mapping[int, int]) -> set[int]:
    """The workers that live on for a moment after their actors, in which they save."""
    found: set[int] = set()

    def all_have_lost_them() -> bool:
        now = {pid: parent(pid) for pid in actors}
        found.update(pid for pid in now if now[pid] not in (0, actors[pid]))
        return all(now[pid] != actor for pid, actor in actors.items())

    wait_for(all_have_lost_them, 60)
    return found


def node_of(pid: int, raylets: list[int]) -> int:
    """The raylet that a process descends from."""
    while pid not in raylets:
        assert pid > 1, "it does not descend from a node"
        pid = parent(pid)
    return pid


class Sweep:
    """A sweep on the cluster, and what became of it."""

    def __init__(self, cluster: TwoNodes, text: Path, folder: Path) -> None:
        grid = f"[grid]\ntrain.lr = {LRS}\nthreads = [1]\ntrain.save_steps = [5]"
        self.out, self.folder, self.cluster = folder / "out", folder, cluster
        path = write(folder / "mine.toml", text, grid, epochs=EPOCHS)
        on_cluster = ("--engine", "ray", "--address", cluster.address, "--jobs", "2")
        self.arguments = (path, *on_cluster, "--out", str(self.out))

    def disturbed(
        self, disturb: Callable[[subprocess.Popen[str], dict[int, int]], None]
    ) -> tuple[int, str]:
        """Disturb it once both workers have made an epoch of a run."""
        with started(*self.arguments) as process:
            wait_for(lambda: len(at_work(self.out)) == 2 or process.poll() is not None, 300)
            disturb(process, at_work(self.out))
            _, said = process.communicate(timeout=300)
        return process.returncode, said

    def check(self) -> None:
        """Every point has one record, in the bits of a run that nothing happened to."""
        runs = collect(self.out)
        assert runs.damaged == []
        assert sorted(run.config.train.lr for run in runs) == LRS
        assert all(run.complete and len(run.metrics) == EPOCHS for run in runs)
        counted = states(self.out / "mine")
        assert [counted[(task, "COMPLETE")] for task in range(len(LRS))] == [1] * len(LRS)
        for run in runs:
            training.run(run.config, self.folder / run.folder.name)
            assert result(run.folder) == result(self.folder / run.folder.name)


@pytest.fixture
def sweep(cluster: TwoNodes, text: Path, tmp_path: Path) -> Sweep:
    return Sweep(cluster, text, tmp_path)


@needs_ray
@stress_only
@pytest.mark.parametrize("victim", ["worker", "actor"])
def test_a_worker_is_killed(victim: str, sweep: Sweep) -> None:
    def disturb(_: object, working: dict[int, int]) -> None:
        pid = min(working)
        kill(pid if victim == "worker" else parent(pid))

    code, said = sweep.disturbed(disturb)
    assert code == 0, said
    assert said.count("a worker died") == 1
    assert ("exit code -9" if victim == "worker" else "lost by the Ray cluster") in said
    sweep.check()


@needs_ray
@stress_only
def test_a_node_is_killed(sweep: Sweep) -> None:
    """Its worker saves and stops; the other node continues the run, within 90 seconds."""
    noticed: list[float] = []

    def disturb(process: subprocess.Popen[str], working: dict[int, int]) -> None:
        nodes = {pid: node_of(pid, sweep.cluster.raylets) for pid in working}
        assert len(set(nodes.values())) == 2, "one worker on each node"
        pid, raylet = min(nodes.items())
        before = time.monotonic()
        kill(raylet)
        sweep.cluster.raylets.remove(raylet)
        assert process.stderr is not None
        for line in process.stderr:
            if "a worker died" in line:
                assert "its node died" in line
                break
        noticed.append(time.monotonic() - before)
        assert parent(pid) == 0, "it has stopped"

    code, said = sweep.disturbed(disturb)
    sweep.cluster.add_node()
    assert code == 0, said
    assert noticed[0] < 90
    print(f"the loss of a node was noticed after {noticed[0]:.0f} s")
    sweep.check()


@needs_ray
@stress_only
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_command_is_killed_or_stopped(number: int, sweep: Sweep) -> None:
    """The workers save and stop, and the same command continues."""
    pids: list[int] = []

    def disturb(process: subprocess.Popen[str], working: dict[int, int]) -> None:
        pids.extend(working)
        actors = {pid: parent(pid) for pid in pids}
        process.send_signal(number)
        if number == signal.SIGKILL:
            assert outliving(actors) == set(pids)

    code, said = sweep.disturbed(disturb)
    assert code == (130 if number == signal.SIGINT else -number), said
    assert "Traceback" not in said
    assert pids
    wait_for(lambda: not any(kill(pid, 0) for pid in pids), 60)
    assert "Traceback" not in (sweep.out / "mine" / "workers.log").read_text()
    assert any(not run.complete for run in collect(sweep.out))
    with started(*sweep.arguments) as process:
        _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    sweep.check()


@needs_ray
@stress_only
def test_the_token_is_nowhere(sweep: Sweep) -> None:
    """Neither in the records nor in the logs, the arguments or the environment of processes."""
    seen: list[bytes] = []

    def disturb(*_: object) -> None:
        for name in ("cmdline", "environ"):
            for path in Path("/proc").glob(f"[0-9]*/{name}"):
                try:
                    seen.append(path.read_bytes())
                except OSError:
                    continue

    code, said = sweep.disturbed(disturb)
    assert code == 0, said
    token = sweep.cluster.token.encode()
    assert len(seen) > 20
    assert not any(token in text for text in seen)
    assert token.decode() not in said
    files = [*sweep.out.rglob("*"), *sweep.cluster.logs.rglob("*")]
    contents = [path.read_bytes() for path in files if path.is_file() and not path.is_symlink()]
    assert len(contents) > 20
    assert not any(token in content for content in contents)


LISTENING = "0A"  # in the tables of the kernel
LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")


def listening(pids: list[int]) -> set[str]:
    """The addresses at which some processes listen, as in /proc/net/tcp."""
    sockets = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                sockets.add(os.readlink(entry))
    rows = [line.split() for name in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]  # fmt: skip
    return {
        row[1].partition(":")[0]
        for row in rows
        if row[3] == LISTENING and f"socket:[{row[9]}]" in sockets
    }


def with_environment(text: bytes) -> list[int]:
    """The processes whose environment contains a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if text in path.read_bytes():
                found.append(int(path.parent.name))
    return found


@needs_ray
@stress_only
def test_a_cluster_of_its_own(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else reaches it, and it ends with the command."""
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    path = write(tmp_path / "mine.toml", text, "[grid]\ntrain.lr = [1.0]", epochs=EPOCHS)
    out = tmp_path / "out"
    with started(path, "--engine", "ray", "--out", str(out)) as process:
        wait_for(lambda: len(at_work(out)) == 1 or process.poll() is not None, 300)
        mine = with_environment(b"/noisin-ray-")
        assert len(mine) > 3
        addresses = listening(mine)
        assert addresses
        assert addresses <= set(LOOPBACK)
        _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert [run.complete for run in collect(out)] == [True]
    wait_for(lambda: not with_environment(b"/noisin-ray-"), 60)


@needs_ray
@stress_only
def test_a_wrong_token_and_no_cluster(
    cluster: TwoNodes, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message, before anything is written."""
    path = write(tmp_path / "mine.toml", text, "[grid]\ntrain.lr = [1.0]")
    wrong = tmp_path / "wrong"
    wrong.write_text(secrets.token_hex(32))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(wrong))
    for address in (cluster.address, "127.0.0.1:1"):
        arguments = (path, "--engine", "ray", "--address", address, "--out", str(tmp_path / "out"))
        with started(*arguments) as process:
            _, said = process.communicate(timeout=240)
        assert process.returncode == 2, said
        assert f"the Ray cluster at {address} cannot be used" in said
        assert "Traceback" not in said
        assert not (tmp_path / "out").exists()
