"""The files of a run: written whole, read back, and what is said where they are not good."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from noisin._util.files import write_atomically
from noisin._util.lock import locked
from noisin.errors import InvalidValue, Unavailable, Unsupported
from noisin.tasks.unit import PERPLEXITY
from noisin.training import RunRecord
from noisin.training.config import RunConfig, ScheduleConfig, TrainConfig
from noisin.training.runtime.environment import changes, environment
from noisin.training.runtime.progress import Quiet, RunOutline, Status
from noisin.training.runtime.signals import Interrupted, caught
from noisin.training.schedule import Schedule, in_nats, noise_share
from tests.experiments.records import line


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    return RunRecord(tmp_path / "run")


def test_what_is_written_is_read(record: RunRecord) -> None:
    record.make_folder()
    config = RunConfig(seed=3)
    assert not record.exists
    assert record.summary is None
    assert record.metrics == []
    record.write("config.json", config.to_json())
    best = line(2, 82.125) | {"weights": "raw", "test": math.inf}
    summary = {"best": best, "epochs": 3, "seconds": 1.5}
    record.write("summary.json", summary | {"last": [math.inf, math.nan]})
    assert record.exists
    assert record.config == config
    assert record.summary == summary | {"best": best | {"test": None}, "last": [None, None]}
    record.remove_summary()
    record.remove_summary()
    assert record.summary is None
    assert sorted(path.name for path in record.folder.iterdir()) == ["config.json"]


def test_metrics_are_lines_of_json(record: RunRecord) -> None:
    record.make_folder()
    lines = [line(1, 1 / 3), line(2, 90.0) | {"valid": math.inf}]
    ends = [record.append(some) for some in lines]
    assert record.metrics == [lines[0], lines[1] | {"valid": None}]
    assert record.metrics_until(ends[0]) == lines[:1]
    path = record.folder / "metrics.jsonl"
    assert ends[1] == path.stat().st_size
    with path.open("a") as file:
        file.write('{"epoch": 3, "val')
    assert len(record.metrics) == 2, "the line that was cut off does not count"
    record.cut_metrics(ends[0])
    assert record.metrics == lines[:1]
    record.append(lines[1])
    assert len(record.metrics) == 2
    record.cut_metrics(0)
    assert record.metrics == []
    with pytest.raises(InvalidValue, match="has 0 bytes and had 7"):
        record.metrics_until(7)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "{", "config.json cannot be parsed"),
        ("config.json", "[]", "must contain settings by name"),
        ("config.json", '{"sead": 3}', "sead is not a setting. Did you mean seed?"),
        ("summary.json", "{", "summary.json cannot be read: it is damaged .* Restore the whole"),
        ("environment.json", "3", "environment.json must contain a JSON object, got 3"),
        ("metrics.jsonl", "nonsense\n{}\n", "metrics.jsonl is damaged"),
        ("vocabulary.json", "{}", "vocabulary.json: is damaged"),
    ],
)
def test_bad_files(record: RunRecord, name: str, content: str, message: str) -> None:
    record.make_folder()
    (record.folder / name).write_text(content)
    with pytest.raises(InvalidValue, match=message):
        getattr(record, name.partition(".")[0])


def test_a_write_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_atomically(path, b"old")
    (tmp_path / ".new-summary.json").mkdir()  # in the way
    with pytest.raises(Unavailable, match="cannot write .*summary.json: Is a directory"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    refused = pytest.raises(Unsupported, match=rf"another process \(PID {os.getpid()}\)")
    with locked(tmp_path), refused, locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
    with pytest.raises(Unavailable, match="cannot write .*: No such file"), locked(tmp_path / "no"):
        pass


def test_environment() -> None:
    here = environment(threads=2, device="cpu")
    assert here["threads"] == 2
    assert here["processor"]
    assert set(here["versions"]) >= {"noisin", "python", "torch", "numpy", "safetensors"}
    assert all(here["versions"].values())
    assert json.loads(json.dumps(here)) == here
    assert changes(here, here) == {}
    assert changes(here, {**here, "threads": 3}) == {"threads": 3}


# Signals, in this process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_flag(number: int) -> None:
    before = signal.getsignal(number)
    with caught() as flag:
        assert flag.signum is None
        os.kill(os.getpid(), number)
        assert flag.signum == number
        assert signal.getsignal(number) is before, "the next one does what it would have done"
    assert signal.getsignal(number) is before
    with caught() as flag:
        pass
    assert flag.signum is None
    assert signal.getsignal(number) is before
    assert Interrupted(number, "").exit_code == 128 + number


def test_what_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with caught() as flag:
            os.kill(os.getpid(), signal.SIGINT)
            assert flag.signum is None
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_a_thread_nothing_is_caught() -> None:
    flags: list[Any] = []

    def work() -> None:
        with caught() as flag:
            flags.append(flag.signum)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert flags == [None]


def test_without_a_display_notes_are_warnings() -> None:
    quiet = Quiet()
    quiet.begin(RunOutline(Path("run"), RunConfig(), parameters=1, device="cpu", threads=1))
    quiet.status(Status(1, 2, PERPLEXITY, 3.0, 4.0, 0.5, 6.0))
    quiet.epoch({}, PERPLEXITY)
    quiet.end()
    with pytest.warns(UserWarning, match="skipping"):
        quiet.note("skipping")


# Decisions


def test_the_step_size() -> None:
    train = TrainConfig(averaging="none")
    schedule = Schedule.start(train)
    for value, lr in [
        (100.0, 30.0),
        (90.0, 30.0),
        (90.0, 25.0),
        (95.0, 25 / 1.2),
        (80.0, 25 / 1.2),
    ]:
        schedule.judge(train, value, None)
        assert schedule.lr == pytest.approx(lr)
    assert schedule.bests == {"raw": (80.0, 5)}
    assert schedule.judge(train, math.nan, math.nan) == []
    assert schedule.bests == {"raw": (80.0, 5)}
    assert Schedule.from_state_dict(schedule.state_dict()) == schedule


def test_patience() -> None:
    train = TrainConfig(patience=2)
    schedule = Schedule.start(train)
    verdicts = []
    averages = (99.0, 95.0, 90.0, 91.0, 92.0)
    for raw, averaged in zip((90.0, 80.0, 85.0, 84.0, 83.0), averages, strict=True):
        schedule.judge(train, raw, averaged)
        verdicts.append(schedule.out_of_patience(train))
    assert verdicts == [False, False, False, False, True], "the average was best after epoch 3"
    assert schedule.bests == {"raw": (80.0, 2), "averaged": (90.0, 3)}
    assert schedule.best_weights == "raw"
    assert not schedule.out_of_patience(TrainConfig())


def test_the_average_counts_after_the_trigger() -> None:
    train = TrainConfig(averaging="nt", nt_window=1)
    schedule = Schedule.start(train)
    for value in (90.0, 80.0, 95.0):
        schedule.judge(train, value, None)
    assert schedule.averaging
    assert schedule.judge(train, 96.0, 70.0) == ["averaged"]
    assert (schedule.best_weights, schedule.history[-1]) == ("averaged", 70.0)
    assert schedule.bests == {"raw": (80.0, 2), "averaged": (70.0, 4)}


def test_the_decisions_of_a_run_of_noisin_0_1() -> None:
    old = {"lr": 20.0, "averaging": True, "best": 80.0, "best_epoch": 2, "best_weights": "raw"}
    schedule = Schedule.from_state_dict(in_nats(old | {"history": [90.0, 80.0, 85.0]}))
    assert schedule.bests == {"raw": (math.log(80.0), 2)}
    train = TrainConfig()
    assert schedule.judge(train, math.log(81.0), math.log(82.0)) == ["averaged"]
    assert schedule.lr == 20 / 1.2
    new = old | {"best": math.inf, "best_epoch": 0, "history": []}
    assert Schedule.from_state_dict(in_nats(new)).bests == {}


@pytest.mark.parametrize(
    ("schedule", "shares"),
    [
        (ScheduleConfig(), [1, 1, 1]),
        (ScheduleConfig(kind="linear", epochs=2), [0, 0.5, 1]),
        (ScheduleConfig(kind="linear", epochs=2, start=1, end=0.5), [1, 0.75, 0.5]),
        (ScheduleConfig(kind="cosine", epochs=3), [0, 0.25, 0.75, 1, 1]),
    ],
)
def test_schedules(schedule: ScheduleConfig, shares: list[float]) -> None:
    assert [noise_share(schedule, epoch) for epoch in range(len(shares))] == pytest.approx(shares)
