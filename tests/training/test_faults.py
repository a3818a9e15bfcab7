"""What can go wrong with disks, files, processes and numbers, each in a real process."""

from __future__ import annotations

import json
import math
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from noisin._util.files import sha256
from noisin.experiments.collection import collect
from noisin.models import LanguageModel
from noisin.training import RunRecord
from noisin.training.checkpoint import Checkpoints
from noisin.training.runtime.divergence import Diverged
from tests.training import toy

SETTINGS = toy.config(train={"save_steps": 4, "epochs": 2})


@pytest.fixture(scope="module")
def expected(tmp_path_factory: Any) -> dict[str, Any]:
    """The result of a run that nothing happened to."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert toy.run(out, settings=SETTINGS).code == 0
    return toy.result(out)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: Any) -> Path:
    """A run that was stopped in its second epoch, with three checkpoints or more."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    outcome = toy.run(out, settings=SETTINGS, before=toy.signal_at(out, 40, signal.SIGTERM))
    assert outcome.code == 143
    assert len(RunRecord(out).metrics) == 1
    assert len(toy.numbers(out)) >= 2
    return out


# Damaged checkpoints


class Evil:
    """Unpickled, it would run a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-100] ^= 4
    path.write_bytes(bytes(content))


def remove(path: Path) -> None:
    path.unlink()


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps(Evil(f"touch {path.parents[2] / 'executed'}")))


def pickled_by_torch(path: Path) -> None:
    torch.save({"epoch": Evil(f"touch {path.parents[2] / 'executed'}")}, path)


def text(path: Path) -> None:
    path.write_text("Call me Ishmael.")


DAMAGES = [truncate, empty, flip_a_bit, remove, pickled, text]
FILES = ["weights.safetensors", "average.safetensors", "state.pt", "manifest.json"]


def vouch_for(folder: Path) -> None:
    """Give a checkpoint a manifest that fits what its files hold now."""
    path = folder / "manifest.json"
    body = json.loads(path.read_text())
    del body["sha256"]
    body["files"] = {name: sha256((folder / name).read_bytes()) for name in body["files"]}
    body["sha256"] = sha256(json.dumps(body, sort_keys=True).encode())
    path.write_text(json.dumps(body))


def newest(out: Path) -> Path:
    return out / "checkpoints" / f"{max(toy.numbers(out)):06d}"


def check_fallback(out: Path, expected: dict[str, Any], reason: str = "") -> None:
    """The run goes on from the checkpoint before and says so; nothing was executed or deleted."""
    damaged = newest(out)
    outcome = toy.run(out, settings=SETTINGS)
    assert outcome.code == 0, outcome.message
    (note,) = outcome.notes
    assert f"{damaged}: " in note
    assert reason in note
    assert "Using the one before it, of step" in note
    assert damaged.with_name(f"damaged-{damaged.name}").is_dir()
    assert not (out / "executed").exists()
    assert toy.result(out) == expected


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_checkpoint_is_not_used(
    name: str, damage: Callable[[Path], None], stopped: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(stopped, tmp_path / "run")
    damage(newest(out) / name)
    notes: list[str] = []
    checkpoints = Checkpoints(
        out / "checkpoints", toy.manifest(stopped, max(toy.numbers(stopped)))["run"]
    )
    found = checkpoints.newest(notes.append)
    assert found is not None
    assert found.manifest.number == toy.numbers(out)[-2]
    assert len(notes) == 1
    assert not (out / "executed").exists()


@pytest.mark.parametrize(
    ("name", "damage", "reason"),
    [
        ("weights.safetensors", flip_a_bit, "weights.safetensors does not match its hash"),
        ("state.pt", truncate, "state.pt does not match its hash"),
        ("manifest.json", flip_a_bit, "its manifest"),
        ("average.safetensors", empty, "average.safetensors does not match its hash"),
    ],
)
def test_a_run_falls_back(
    name: str, damage: Any, reason: str, stopped: Path, tmp_path: Path, expected: dict[str, Any]
) -> None:
    out = shutil.copytree(stopped, tmp_path / "run")
    damage(newest(out) / name)
    check_fallback(out, expected, reason)


@pytest.mark.parametrize("damage", [pickled, pickled_by_torch, text, truncate])
def test_code_is_never_executed(
    damage: Any, stopped: Path, tmp_path: Path, expected: dict[str, Any]
) -> None:
    """Even where someone has made the hashes fit."""
    out = shutil.copytree(stopped, tmp_path / "run")
    damage(newest(out) / "state.pt")
    vouch_for(newest(out))
    check_fallback(out, expected)


def test_a_foreign_checkpoint_is_not_used(
    stopped: Path, tmp_path: Path, expected: dict[str, Any]
) -> None:
    out = shutil.copytree(stopped, tmp_path / "run")
    toy.fit(tmp_path / "other", seed=3)
    shutil.rmtree(newest(out))
    shutil.copytree(newest(tmp_path / "other"), out / "checkpoints" / "000099")
    path = out / "checkpoints" / "000099" / "manifest.json"
    path.write_text(path.read_text().replace('"number": 3', '"number": 99'))
    vouch_for(path.parent)
    check_fallback(out, expected, "it belongs to another run")


def test_where_none_is_good(stopped: Path, tmp_path: Path) -> None:
    out = shutil.copytree(stopped, tmp_path / "run")
    for number in toy.numbers(out):
        flip_a_bit(out / "checkpoints" / f"{number:06d}" / "state.pt")
    before = sorted(out.rglob("*"))
    outcome = toy.run(out, settings=SETTINGS)
    assert outcome.code == 2
    assert "no checkpoint can be used" in outcome.message
    assert sorted(out.rglob("*")) == before


def test_metrics_that_were_shortened(stopped: Path, tmp_path: Path) -> None:
    out = shutil.copytree(stopped, tmp_path / "run")
    truncate(out / "metrics.jsonl")
    assert RunRecord(out).metrics == []
    outcome = toy.run(out, settings=SETTINGS)
    assert outcome.code == 2
    assert "Restore the whole file" in outcome.message


# Disks and processes


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 80 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=80k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("to mount a small disk takes root")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(disk)], check=True)


def test_a_full_disk(small_disk: Path, expected: dict[str, Any]) -> None:
    out = small_disk / "run"
    outcome = toy.run(out, settings=SETTINGS)
    assert outcome.code == 2
    assert "No space left on device. Everything saved before is intact" in outcome.message
    assert toy.numbers(out)
    remount(small_disk, "size=10m")
    assert toy.run(out, settings=SETTINGS) == toy.Outcome(0, "", [])
    assert toy.result(out) == expected


def test_a_limit_on_files(tmp_path: Path, expected: dict[str, Any]) -> None:
    """A save that cannot be completed leaves nothing behind."""
    out = tmp_path / "run"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, resource.RLIM_INFINITY))

    outcome = toy.run(out, settings=SETTINGS, before=limit)
    assert outcome.code == 2
    assert f"cannot write {out / 'checkpoints' / '000001'}: File too large" in outcome.message
    assert list((out / "checkpoints").iterdir()) == []
    assert toy.run(out, settings=SETTINGS) == toy.Outcome(0, "", [])
    assert toy.result(out) == expected


def test_a_read_only_disk(small_disk: Path) -> None:
    remount(small_disk, "ro")
    outcome = toy.run(small_disk / "run", settings=SETTINGS)
    assert outcome.code == 2
    assert f"cannot write {small_disk / 'run'}: Read-only file system" in outcome.message


def test_a_folder_where_nothing_can_be_made() -> None:
    """Not even by root."""
    outcome = toy.run(Path("/proc/run"), settings=SETTINGS)
    assert outcome.code == 2
    assert "cannot write /proc/run" in outcome.message


def test_a_run_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    outcome = toy.run(tmp_path / "run", settings=SETTINGS)
    assert outcome.code == 2
    assert "File exists" in outcome.message


def test_two_processes_in_one_folder(tmp_path: Path, expected: dict[str, Any]) -> None:
    """The second is refused; the lock of a killed one is free."""
    out = tmp_path / "run"
    waiting = tmp_path / "waiting"

    def pause(n: int) -> None:
        if n == 30:
            waiting.touch()
            toy.wait_for(lambda: not waiting.exists())

    first = toy.Process(out, SETTINGS, before=lambda: toy.at_file_events(out, pause))
    toy.wait_for(waiting.exists)
    second = toy.run(out, settings=SETTINGS)
    assert second.code == 2
    assert f"another process (PID {first.pid}) is using {out}" in second.message
    first.signal(signal.SIGKILL)
    assert first.wait().code == -signal.SIGKILL
    assert toy.run(out, settings=SETTINGS) == toy.Outcome(0, "", [])
    assert toy.result(out) == expected


# Numbers


def test_divergence(tmp_path: Path) -> None:
    """It stops at once, says where and what to try, and the checkpoint before is good."""
    out = tmp_path / "run"
    settings = toy.config(
        model={"cell": "elman-relu"}, train={"lr": 1e4, "clip": 0, "save_steps": 1, "epochs": 9}
    )
    outcome = toy.run(out, settings=settings)
    assert outcome.code == 2
    step = 1 + toy.manifest(out, max(toy.numbers(out)))["step"]
    assert f"the loss is not finite at step {step} of {out}" in outcome.message
    assert f"the last good checkpoint is {newest(out)}." in outcome.message
    assert re.search(r"the output of layers\.[01]\.rnn is not finite", outcome.message)
    assert "smaller train.lr (now 10000) or train.clip (now none), or less noise" in outcome.message
    run = toy.manifest(out, max(toy.numbers(out)))["run"]
    good = Checkpoints(out / "checkpoints", run).newest(pytest.fail)
    assert good is not None
    assert all(weight.isfinite().all() for weight in good.weights.values())
    assert toy.run(out, settings=settings).message == outcome.message


def test_divergence_is_traced_with_the_noise_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For with other noise the window may be harmless, and the wrong layer be named."""
    streams, loss = [], LanguageModel.loss

    def listening(self: LanguageModel, batch: Any, state: Any = None) -> Any:
        streams.append(torch.get_rng_state())
        return loss(self, batch, state)

    monkeypatch.setattr(LanguageModel, "loss", listening)
    with pytest.raises(Diverged):
        toy.fit(tmp_path / "run", model={"cell": "elman-relu"}, train={"lr": 1e4, "clip": 0})
    assert torch.equal(streams[-1], streams[-2])
    assert not torch.equal(streams[-2], streams[-3])


@pytest.mark.parametrize("save_steps", [1, None])
def test_weights_that_overflow_are_not_saved(save_steps: int | None, tmp_path: Path) -> None:
    """Where the loss is finite and the step is not: before a save, or at the next step."""
    train = {"lr": 1e60, "clip": 0, "save_steps": save_steps}
    outcome = toy.run(tmp_path / "run", settings=toy.config(train=train))
    assert outcome.code == 2
    step = 1 if save_steps else 2
    assert (
        f"at step {step} of {tmp_path / 'run'} (epoch 1): the weights bias are" in outcome.message
    )
    assert "this one has no checkpoint yet" in outcome.message
    assert toy.numbers(tmp_path / "run") == []


@pytest.mark.parametrize("train", [{"lr": 1e4, "clip": 0}, {"lr": 1e35, "tokens": 80}])
def test_a_loss_whose_exponential_overflows_is_not_divergence(
    train: dict[str, Any], tmp_path: Path
) -> None:
    """A finite loss is finite, however large the perplexity: it is recorded, and scored on test."""
    out = tmp_path / "run"
    settings = toy.config(train={"averaging": "none", "epochs": 2, **train})
    assert toy.run(out, settings=settings) == toy.Outcome(0, "", [])
    record = RunRecord(out)
    assert max(line["valid"]["nats"] for line in record.metrics) > 709
    assert record.summary is not None
    assert math.isfinite(record.summary["best"]["test"]["nats"])
    (run,) = collect(tmp_path)
    assert run.valid[0] == math.inf
