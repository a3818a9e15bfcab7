"""``noisin sweep`` with real processes: killed, stopped, started twice; and what it prints."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from noisin import training
from noisin.cli import sweep as command
from noisin.experiments import sweep
from noisin.experiments.collection import collect
from noisin.training import RunRecord
from tests.cli.run import in_process, noisin
from tests.pairwise import stress_only
from tests.training.toy import result, wait_for

POINTS = int(os.environ.get("NOISIN_SWEEP_POINTS", "2"))  # `make stress` asks for more,
KILLS = float(os.environ.get("NOISIN_SWEEP_KILLS", "0"))  # and for a death every so many seconds
EPOCHS = 12 if KILLS else 6  # of a run: long enough to be killed in the middle

FILE = """
base = "manual"
[data]
name = "{text}"
[model]
hidden_size = 8
[train]
batch_size = 4
bptt = 4
lr = 1.0
epochs = {epochs}
{rest}
"""


@pytest.fixture(autouse=True)
def _nothing_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISIN_KERNEL", "eager")


def write(path: Path, text: Path, rest: str, epochs: int = 1) -> str:
    path.write_text(FILE.format(text=text, rest=rest, epochs=epochs))
    return str(path)


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command at work, as from a terminal: it does not outlive the test."""
    process = subprocess.Popen(
        [sys.executable, "-m", "noisin", "sweep", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def workers(process: subprocess.Popen[str]) -> list[int]:
    """The processes that the command has started."""
    try:
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in listed.split()]


def at_work(out: Path) -> dict[int, int]:
    """The workers in the middle of a run, by the locks of its folder, and the epochs it has."""
    found = {}
    for lock in out.glob("*/*/.lock"):
        epochs = len(RunRecord(lock.parent).metrics)
        if epochs and not lock.with_name("summary.json").exists():
            found[int(lock.read_text() or 0)] = epochs
    return found


def kill(pid: int, number: int = signal.SIGKILL) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def states(folder: Path) -> Counter[tuple[int, str]]:
    """How often each task has each state in the study."""
    import optuna
    import sqlalchemy

    storage = optuna.storages.RDBStorage(f"sqlite:///{folder / 'study.db'}")
    (name,) = optuna.get_all_study_names(storage)
    trials = optuna.load_study(study_name=name, storage=storage).get_trials()
    assert isinstance(storage.engine, sqlalchemy.Engine)
    storage.engine.dispose()
    return Counter((trial.user_attrs["task"], trial.state.name) for trial in trials)


def test_a_dry_run(text: Path, tmp_path: Path, capsys: Any) -> None:
    """Every run, and nothing is written; of a search, its ends."""
    grid = write(tmp_path / "grid.toml", text, "[grid]\nnoise.std = [0.1, 0.2]\nseed = [1, 2]")
    out = ("--out", str(tmp_path / "runs"), "--dry-run")
    assert in_process("sweep", grid, *out, "--jobs", "2") == 0
    told = capsys.readouterr().out
    assert [line.split()[0] for line in told.splitlines() if line.endswith("new")] == [
        f"std-{std}-seed-{seed}" for std in (0.1, 0.2) for seed in (1, 2)
    ]
    assert f"4 runs in {tmp_path / 'runs' / 'grid'}, of which 0 are complete." in told
    search = "[search]\ntrials = 7\nnoise.std = {low = 0.1, high = 2.0}"
    assert in_process("sweep", write(tmp_path / "s.toml", text, search), *out) == 0
    assert "draws 7 points: 7 runs in" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()


@pytest.mark.long
def test_workers_are_killed_and_each_point_has_one_record(text: Path, tmp_path: Path) -> None:
    """SIGKILL in the middle of runs: they end in the bits of runs that nothing happened to."""
    lrs = [round(1 + k / 10, 1) for k in range(POINTS)]
    grid = f"[grid]\ntrain.lr = {lrs}\nthreads = [1]"
    path = write(tmp_path / "killed.toml", text, grid, epochs=EPOCHS)
    out, dice, killed = tmp_path / "out", random.Random(0), set[int]()
    seen: dict[int, int] = {}
    with started(path, "--jobs", "2", "--out", str(out)) as process:
        last = time.monotonic()
        while process.poll() is None:
            time.sleep(0.05)
            now = at_work(out)
            seen = now | seen
            # Each has made an epoch before it dies: on a slow machine, too, it comes to an end.
            victims = [pid for pid in now if pid not in killed and now[pid] > seen[pid]]
            wanted = time.monotonic() - last > KILLS if KILLS else not killed
            if victims and wanted and kill(chosen := dice.choice(victims)):
                killed.add(chosen)
                last = time.monotonic()
        printed, said = process.communicate()
    assert process.returncode == 0, said
    assert len(killed) >= (POINTS // 4 if KILLS else 1)
    assert said.count("a worker died") == len(killed)
    runs = collect(out)
    assert runs.damaged == []
    assert len(runs) == POINTS
    assert all(run.complete and len(run.metrics) == EPOCHS for run in runs)
    assert sorted(run.config.train.lr for run in runs) == lrs
    assert {n for task, n in states(out / "killed").items() if task[1] == "COMPLETE"} == {1}
    assert sum(n for task, n in states(out / "killed").items() if task[1] == "COMPLETE") == POINTS
    for run in dice.sample(list(runs), min(3, POINTS)):
        training.run(run.config, tmp_path / run.folder.name)
        assert result(run.folder) == result(tmp_path / run.folder.name)
    assert f"{POINTS}/{POINTS} done" in said
    assert len([line for line in printed.splitlines() if line.startswith("lr-")]) == POINTS
    print(f"{POINTS} points, {len(killed)} workers killed")


@stress_only
def test_ctrl_c_and_on(
    text: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops cleanly, the same command goes on, and once more there is nothing to do."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    rest = '[grid]\ntrain.lr = [1.0, 1e60, 2.0]\ntrain.clip = [0]\n"noise.std" = [0.1]'
    path = write(tmp_path / "stopped.toml", text, rest, epochs=EPOCHS)
    out = tmp_path / "out"
    arguments = (path, "--jobs", "2", "--out", str(out))
    with started(*arguments) as process:
        wait_for(lambda: bool(at_work(out)), 240)
        pids = workers(process)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"stopped; all runs are saved in {out / 'stopped'}. Run the same command" in said
    assert "Traceback" not in said
    assert not any(kill(pid, 0) for pid in pids), "no worker is left behind"
    begun = {run.name: len(run.metrics) for run in collect(out) if run.metrics}
    assert begun
    assert in_process("sweep", *arguments) == 0
    runs = collect(out)
    assert sorted((run.end, run.complete) for run in runs if run.end) == [("diverged", False)]
    assert [len(run.metrics) for run in runs if run.complete] == [EPOCHS] * 2
    assert {run.environment["threads"] for run in runs} == {1}, "two, divided among two"
    assert "1 diverged" in capsys.readouterr().out
    points = json.loads((out / "stopped" / "points.json").read_text())
    assert [(p["valid"] and p["valid"]["n"], p["diverged"]) for p in points] == [
        (1, 0),
        (1, 0),
        (None, 1),
    ]
    files = {path: path.stat().st_mtime_ns for path in out.glob("*/*/*.json")}
    assert in_process("sweep", *arguments) == 0, "without any worker"
    elsewhere = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    assert in_process("sweep", *arguments, "--storage", elsewhere) == 0
    assert files == {path: path.stat().st_mtime_ns for path in out.glob("*/*/*.json")}
    assert (tmp_path / "elsewhere.db").exists()


@stress_only
def test_the_parent_is_killed_while_two_share_the_work(text: Path, tmp_path: Path) -> None:
    """The workers of a command that is gone save and stop; the other command does what is left."""
    path = write(tmp_path / "shared.toml", text, "[grid]\ntrain.lr = [1.0, 2, 3]", epochs=EPOCHS)
    out = tmp_path / "out"
    arguments = (path, "--jobs", "1", "--out", str(out))
    with started(*arguments) as first, started(*arguments) as second:
        wait_for(lambda: len(at_work(out)) >= 1 and bool(workers(second)), 240)
        orphans = workers(first)
        first.kill()
        first.communicate()
        _, said = second.communicate(timeout=240)
    assert second.returncode == 0, said
    wait_for(lambda: not any(kill(pid, 0) for pid in orphans))
    runs = collect(out)
    assert [len(run.metrics) for run in runs if run.complete] == [EPOCHS] * 3
    counted = states(out / "shared")
    assert {counted[(task, "COMPLETE")] for task in range(3)} == {1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no-such-sweep",), "There is no sweep or TOML file 'no-such-sweep'"),
        (("manual-families", "--jobs", "0"), "--jobs must be between 1 and 1024, got 0"),
        (("manual-families", "--jobs", "two"), "expected a whole number, got 'two'"),
        (("manual-families", "--noise.std", "2"), "noise.std is varied by this sweep"),
        (("manual-families", "--train.epochs", "0"), "train.epochs must be 1 or more, got 0"),
        (("manual-families", "--data.name", "/no/such/text"), "/no/such/text"),
        (("manual-families", "--storage", "nonsense"), "cannot be used"),
        (("manual-families", "--storage", "postgresql://u:secret@nowhere/x"), "u:***@nowhere"),
        (("manual-families", "--address", "auto"), "--address is that of a Ray cluster. Add"),
        (("manual-families", "--engine", "slurm"), "slurm"),
        ((), "sweep"),
    ],
)
def test_bad_input(arguments: Any, message: str, tmp_path: Path, capsys: Any) -> None:
    assert in_process("sweep", *arguments, "--out", str(tmp_path / "out")) == 2
    said = capsys.readouterr().err
    assert said.startswith("noisin: ")
    assert message in said
    assert "secret" not in said
    assert not list(tmp_path.glob("out/*/*-*"))


@pytest.mark.parametrize("seconds", ["abc", "0", "nan"])
def test_a_lease_that_is_no_time(
    seconds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("NOISIN_LEASE", seconds)
    assert in_process("sweep", "manual-families", "--out", str(tmp_path / "out")) == 2
    assert "must be seconds between 0.5 and 86400" in capsys.readouterr().err
    assert not (tmp_path / "out").exists(), "it is refused before anything is written"


def test_an_out_that_is_a_file(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "out").write_text("")
    assert in_process("sweep", "manual-families", "--out", str(tmp_path / "out")) == 2
    assert "Not a directory. Choose another place." in capsys.readouterr().err


def test_a_database_that_is_none(text: Path, tmp_path: Path, capsys: Any) -> None:
    """It is left as it is: what to do with it is not ours to say."""
    path = write(tmp_path / "odd.toml", text, "[grid]\ntrain.lr = [1.0]")
    database = tmp_path / "out" / "odd" / "study.db"
    database.parent.mkdir(parents=True)
    database.write_text("nonsense")
    assert in_process("sweep", path, "--out", str(tmp_path / "out")) == 2
    assert "file is not a database. If it is damaged, move it away" in capsys.readouterr().err
    assert database.read_text() == "nonsense"


@stress_only
def test_a_database_that_breaks_while_it_is_used(text: Path, tmp_path: Path) -> None:
    """One message, and the records stay."""
    path = write(tmp_path / "mine.toml", text, "[grid]\ntrain.lr = [1.0, 2.0]", epochs=2)
    out = tmp_path / "out"
    with started(path, "--out", str(out)) as process:
        wait_for(lambda: bool(at_work(out)), 60)
        (out / "mine" / "study.db").write_bytes(b"nonsense" * 9999)
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 2, said
    assert "Traceback" not in said
    assert "study.db cannot be used: " in said
    assert "move it away: the runs themselves are in their folders" in said
    assert [len(run.metrics) for run in collect(out)] == [2]


@pytest.mark.parametrize("name", ["study.db", "workers.log", "../.sweep-lock"])
def test_a_fifo_in_the_folder_of_a_sweep(
    name: str, text: Path, tmp_path: Path, capsys: Any
) -> None:
    path = write(tmp_path / "mine.toml", text, "[grid]\ntrain.lr = [1.0]")
    fifo = tmp_path / "out" / "mine" / name
    (tmp_path / "out" / "mine").mkdir(parents=True)
    os.mkfifo(fifo)
    assert in_process("sweep", path, "--out", str(tmp_path / "out")) == 2
    assert "Expected a regular file, got a FIFO" in capsys.readouterr().err
    assert fifo.is_fifo()


def test_without_optuna(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    assert in_process("sweep", "manual-families") == 2
    assert "needs Optuna: pip install 'noisin[sweep]'" in capsys.readouterr().err


def test_without_ray(monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "ray" else name)
    arguments = ("manual-families", "--engine", "ray", "--out", str(tmp_path / "out"))
    assert in_process("sweep", *arguments) == 2
    assert "--engine ray needs Ray: pip install 'noisin[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_help_and_reading_need_neither_optuna_nor_torch() -> None:
    block = "sys.modules['torch'] = sys.modules['optuna'] = None"
    shown = noisin("sweep", "--help", code=block)
    assert shown.returncode == 0, shown.stderr
    assert "manual-families" in shown.stdout
    refused = noisin("sweep", "no-such-sweep", code=block)
    assert refused.returncode == 2


def test_other_data_are_refused(text: Path, tmp_path: Path, capsys: Any) -> None:
    """A run that is complete counts for the text that it has learnt."""
    copy = tmp_path / "text"
    copy.mkdir()
    for name in ("train.txt", "valid.txt", "test.txt"):
        (copy / name).write_text((text / name).read_text())
    path = write(tmp_path / "mine.toml", copy, "[grid]\ntrain.lr = [1.0]")
    (task,) = sweep.read(path).tasks
    config = task.runs[0].config
    folder = tmp_path / "out" / "mine" / f"x-{config.hash()[:12]}"
    training.run(config, folder)
    assert RunRecord(folder).summary is not None
    (copy / "train.txt").write_text((text / "train.txt").read_text() + "a new line\n")
    assert in_process("sweep", path, "--out", str(tmp_path / "out")) == 2
    assert f"{folder} was trained on another text" in capsys.readouterr().err


def test_workers_that_cannot_work(
    text: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no accident if all of them die: one message, and where to look."""
    path = write(tmp_path / "mine.toml", text, "[grid]\ntrain.lr = [1.0]")
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert in_process("sweep", path, "--out", str(out)) == 2
    said = capsys.readouterr().err
    assert "workers keep dying" in said
    assert f"Their output is in {out / 'mine' / 'workers.log'}." in said
    assert said.count("a worker died (exit code 1)") == 5
