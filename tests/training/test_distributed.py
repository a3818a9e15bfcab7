"""Processes that share a batch: the losses, the weights and the record of one process."""

from __future__ import annotations

import functools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from noisin import training
from noisin.experiments import presets
from noisin.training import RunRecord
from noisin.training.record import TIMES
from noisin.training.runtime import distributed
from noisin.training.runtime.workers import Workers
from tests.pairwise import stress_only
from tests.training import toy, toy_music


class Group:
    """The toy trained by several processes, connected as torchrun would connect them."""

    def __init__(
        self,
        out: Path,
        count: int,
        before: Callable[[int], None] = lambda rank: None,
        **changes: Any,
    ) -> None:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]

        def join(rank: int) -> None:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            before(rank)

        settings = toy.config(**changes)
        self.members = [
            toy.Process(out, settings, before=functools.partial(join, rank))
            for rank in range(count)
        ]

    def wait(self) -> list[toy.Outcome]:
        return [member.wait() for member in self.members]


def in_double_precision(_: int = 0) -> None:
    torch.set_default_dtype(torch.float64)


def assert_same_curves(one: Path, other: Path, rel: float = 1e-9) -> None:
    """Every number of every epoch, and of the summary, but for the rounding of sums."""
    first, second = (RunRecord(out) for out in (one, other))
    lines = [[*record.metrics, record.summary["best"]] for record in (first, second)]
    for a, b in zip(*lines, strict=True):
        assert a.keys() == b.keys()
        for name in a.keys() - {*TIMES, "checkpoint"}:
            number = isinstance(a[name], float | dict) and a[name] is not None
            assert a[name] == (pytest.approx(b[name], rel=rel) if number else b[name]), name


KINDS: dict[str, dict[str, Any]] = {
    "everything": {
        "model": {"dropout": {"input": 0.1, "between": 0.1, "output": 0.2, "recurrent": 0.1}},
        "train": {"averaging": "from_start", "clean_tokens": 100},
    },
    "K = 2, varying windows": {"train": {"K": 2, "variable_length": True}},
    "K = 3, one recurrence": {
        "train": {"K": 3},
        "noise": {"feedback": False, "noisy_layers": "last"},
        "model": {"dropout": {"output": 0.2}},
    },
    "penalty": {
        "train": {"objective": "penalty"},
        "noise": {"feedback": False, "noisy_layers": "last"},
    },
    "zoneout": {"model": {"dropout": {"recurrent": 0.1}, "zoneout": {"p_h": 0.2, "p_c": 0.3}}},
    "gate dropout": {"model": {"dropout": {}, "gate_dropout": {"x": 0.3, "h": 0.2}}},
    "random weights and words": {
        "model": {
            "dropout": {"words": 0.2, "recurrent": 0.1},
            "weight_drop": {"p": 0.5},
            "weight_noise": {"std": 0.1},
        },
        "train": {"terms": {"ar": 2.0, "tar": 1.0, "l1": 1e-4, "l2": 1e-3}},
    },
    "locked gates": {
        "model": {"gate_dropout": {"x": 0.3, "h": 0.2, "locked": True, "site": "before"}}
    },
    "updates": {"model": {"update_dropout": {"p": 0.3, "locked": True}}},
    "highway": {
        "model": {
            "cell": "highway",
            "cell_arguments": {"depth": 2},
            "dropout": {"input": 0.1, "recurrent": 0.2, "output": 0.1, "locked": True},
        }
    },
    "padded batches of unequal sizes": toy_music.SETTINGS,
    "importance of padded batches": toy_music.SETTINGS
    | {"train": {**toy_music.TRAIN, "objective": "importance", "K": 2}},
    "a stochastic RNN": toy_music.SETTINGS
    | {"model": {"hidden_size": 6, "tied": False, "latent": {"kind": "vrnn", "z_size": 3}}},
    "another order, resets, two tails": {
        "train": {"averaging": "two_tailed", "partial_shuffle": True, "state_reset": 0.3}
        | {"optimizer": "adam", "lr": 0.01, "beta1": 0, "shrink": 1e-3, "epochs": 4}
    },
    "fraternal": {"train": {"objective": "fraternal"}},
    "mixture of softmaxes, skip, projection": {
        "model": {"embedding_size": 4, "skip": True, "projection": {"dropout": 0.2}}
        | {"head": {"kind": "mixture-of-softmaxes", "experts": 3, "dropout": 0.3}},
    },
    "pointer sentinel, K = 2": {
        "model": {"head": {"kind": "pointer-sentinel", "window": 7}},
        "train": {"K": 2},
    },
}


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_have_the_curve_of_one(kind: str, tmp_path: Path) -> None:
    changes = KINDS[kind] | {"train": {"epochs": 2, **KINDS[kind].get("train", {})}}
    for count in (1, 2):
        group = Group(tmp_path / str(count), count, in_double_precision, **changes)
        outcomes = group.wait()
        assert [outcome.code for outcome in outcomes] == [0] * count, outcomes
    assert_same_curves(tmp_path / "1", tmp_path / "2")


@pytest.mark.long
def test_a_run_goes_on_with_more_processes(tmp_path: Path) -> None:
    """Stopped in the middle of an epoch, so that a state is carried over."""
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    often = {"train": {"save_steps": 4}}
    assert Group(whole, 1, in_double_precision, **often).wait()[0].code == 0

    def before(_: int) -> None:
        in_double_precision()
        toy.signal_at(stopped, 60, signal.SIGTERM)()

    (outcome,) = Group(stopped, 1, before, **often).wait()
    assert outcome.code == 143, outcome
    assert RunRecord(stopped).summary is None
    outcomes = Group(stopped, 4, in_double_precision, **often).wait()
    assert [outcome.code for outcome in outcomes] == [0] * 4, outcomes
    assert_same_curves(stopped, whole)


OFTEN: dict[str, Any] = {"train": {"epochs": 6, "save_steps": 4}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run of two processes comes to when nothing stops it."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert [outcome.code for outcome in Group(out, 2, **OFTEN).wait()] == [0, 0]
    return toy.result(out)


def assert_goes_on(out: Path, whole: dict[str, Any]) -> None:
    assert RunRecord(out).summary is None
    outcomes = Group(out, 2, **OFTEN).wait()
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes
    assert toy.result(out) == whole


@pytest.mark.long
def test_a_signal_to_one_stops_all_and_they_go_on_in_the_same_bits(
    tmp_path: Path, whole: dict[str, Any]
) -> None:
    out = tmp_path / "run"
    group = Group(out, 2, **OFTEN)
    toy.wait_for(lambda: (out / "checkpoints" / "000002").exists())
    group.members[1].signal(signal.SIGTERM)
    outcomes = group.wait()
    assert [outcome.code for outcome in outcomes] == [143, 143], outcomes
    assert_goes_on(out, whole)


@pytest.mark.long
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_others_and_they_go_on_in_the_same_bits(
    victim: int, tmp_path: Path, whole: dict[str, Any]
) -> None:
    out = tmp_path / "run"
    group = Group(out, 2, **OFTEN)
    toy.wait_for(lambda: (out / "checkpoints" / "000002").exists())
    group.members[victim].signal(signal.SIGKILL)
    outcomes = group.wait()
    assert outcomes[victim].code == -signal.SIGKILL
    assert outcomes[1 - victim].code == 2
    assert "another process died" in outcomes[1 - victim].message
    assert_goes_on(out, whole)


def test_a_batch_that_cannot_be_split_is_refused(tmp_path: Path) -> None:
    outcomes = Group(tmp_path / "run", 3).wait()
    assert [o.code for o in outcomes] == [2, 2, 2]
    assert all("8 columns cannot be split evenly among 3" in o.message for o in outcomes)


def test_batch_statistics_are_refused(tmp_path: Path) -> None:
    outcomes = Group(tmp_path / "run", 2, model={"cell": "batch-norm-lstm"}).wait()
    assert [o.code for o in outcomes] == [2, 2]
    assert any("would each normalise by the statistics of their own rows" in o.message
               for o in outcomes)  # fmt: skip


def test_what_the_main_one_is_refused_stops_all(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert toy.run(out).code == 0
    outcomes = Group(out, 2, train={"lr": 7.0}).wait()
    assert [o.code for o in outcomes] == [2, 2]
    assert "other settings" in outcomes[0].message
    assert "the main process failed" in outcomes[1].message


def test_one_process_alone_needs_no_group() -> None:
    with distributed.connected() as workers:
        assert type(workers) is Workers


# The command line under torchrun

SETTINGS_FILE = """
[data]
name = "{text}"
[model]
hidden_size = 6
dropout = {{ output = 0.2 }}
[noise]
gamma = 0.5
[train]
batch_size = 8
bptt = 10
lr = 2.0
epochs = 10
save_steps = 5
clean_tokens = 100
"""


def process_of_rank(rank: int, parent: int) -> int:
    """The process that torchrun gave this rank, by its environment."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            return int(child)
    raise AssertionError(f"no child of {parent} has the rank {rank}")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
@stress_only
def test_torchrun_begins_a_killed_process_again(tmp_path: Path) -> None:
    """``torchrun -m noisin train``: in the bits of two processes that nothing stopped."""
    text = tmp_path / "text"
    text.mkdir()
    corpus = toy.corpus()
    for split in ("train", "valid", "test"):
        words = corpus.vocab.decode(getattr(corpus, split))
        (text / f"{split}.txt").write_text(" ".join(words).replace("<eos>", "\n"))
    file = tmp_path / "toy.toml"
    file.write_text(SETTINGS_FILE.format(text=text))

    def torchrun(out: Path, kill: bool) -> tuple[Path, str]:
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        train = ["--max-restarts=1", "-m", "noisin", "train", str(file), "--out", str(out)]
        with subprocess.Popen(
            [sys.executable, *command, *train], env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            if kill:
                toy.wait_for(lambda: any(out.glob("*/checkpoints/000003")))
                os.kill(process_of_rank(1, process.pid), signal.SIGKILL)
            printed, said = process.communicate(timeout=240)
        assert process.returncode == 0, said
        assert printed.count("The records are in") == 1
        (record,) = out.iterdir()
        return record, said

    killed, said = torchrun(tmp_path / "killed", kill=True)
    assert "another process died" in said
    undisturbed, said = torchrun(tmp_path / "undisturbed", kill=False)
    assert "another process died" not in said
    assert toy.result(killed) == toy.result(undisturbed)
    (config,) = presets.read(str(file)).configs().values()
    training.run(config, tmp_path / "alone")
    assert_same_curves(tmp_path / "alone", killed, rel=1e-4)  # single precision
