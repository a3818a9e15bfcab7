"""A family, a cell, a head, a term and a task are each one class and one row: nothing else changes.

They are added to a copy of the sources, which is then used as a user would: help, training, a kill
and a continuation, report and sweep.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from noisin._util.settings import load_object
from noisin.cli import main
from noisin.models import LanguageModel
from noisin.models.names import HEADS, LATENT, TERMS
from noisin.recurrent.names import CELL_CLASSES
from noisin.tasks.names import TASKS
from tests.extended import extended, run
from tests.noise.test_ninth_family import INSERTIONS as FAMILY
from tests.pairwise import stress_only
from tests.training import toy

CELL = '''
"""The minimal gated unit: a GRU whose two gates are one."""

import torch
from torch import nn


class MinimalGatedUnit(nn.Module):
    """``h = (1 - f) h_prev + f tanh(W [x, f h_prev])``."""

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.gate = nn.Linear(input_size + hidden_size, hidden_size)
        self.candidate = nn.Linear(input_size + hidden_size, hidden_size)

    def forward(self, x, state=None):
        h = x.new_zeros(*x.shape[:-1], self.hidden_size) if state is None else state
        f = self.gate(torch.cat([x, h], -1)).sigmoid()
        return (1 - f) * h + f * self.candidate(torch.cat([x, f * h], -1)).tanh()
'''
HEAD = '''
class Scaled(Dense):
    """A linear head whose natural parameters have a learnt scale."""

    def __init__(self, *args, start: float = 1.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.scale = nn.Parameter(torch.tensor(start))

    @property
    def V(self):
        return self.scale * self.weight.t()
'''
TERM = '''
@dataclass(frozen=True)
class SparsityPenalty(_Weighted):
    """``weight · mean(|z|)`` of what the head reads."""

    name: ClassVar[str] = "sparsity"

    def __call__(self, trace, batch):
        return self.weight * trace.read[-1].abs().mean()


'''
TASK = '''
"""Coins: predict the next of several coins that remember their last toss."""

import torch

from noisin.data import Batch
from noisin.tasks.base import Observation
from noisin.tasks.unit import NATS_PER_STEP


class Coins:
    unit = NATS_PER_STEP
    name = "coins"
    observation = Observation("bernoulli", 3)

    def __init__(self, seed):
        self.seed = seed

    @classmethod
    def from_config(cls, config):
        return cls(config.seed)

    def batches(self, split, *, epoch=0, start=0):
        random = torch.Generator().manual_seed(self.seed + len(split))
        same = torch.rand(8, 11, 4, 3, generator=random) < 0.8
        coins = (same.long().cumsum(1) % 2).float()
        for k in range(start, 8):
            yield Batch(coins[k, :-1], coins[k, 1:], start=k, stop=k + 1, carries=False)
'''
INSERTIONS = {
    **FAMILY,
    "recurrent/minimal.py": ("", CELL),
    "recurrent/names.py": (
        "}\nCELL_NAMES",
        '    "minimal-gated": "noisin.recurrent.minimal:MinimalGatedUnit",\n',
    ),
    "regularizers/terms.py": ("@dataclass(frozen=True)\nclass SlownessPenalty", TERM),
    "tasks/coins.py": ("", TASK),
    "tasks/names.py": (
        "}\n\n\ndef task_of",
        '    "coins": TaskRow("noisin.tasks.coins:Coins", NATS_PER_STEP, data=("coins",)),\n',
    ),
}
ROWS = {  # of files that get more than one insertion, or that end in what is inserted
    "models/names.py": [
        ("HEADS: Mapping[str, str] = {", '"scaled": "noisin.models.heads:Scaled", '),
        (
            "TERMS: Mapping[str, str] = {\n",
            '    "sparsity": "noisin.regularizers.terms:SparsityPenalty",\n',
        ),
    ],
    "tasks/names.py": [("from noisin.tasks.unit import ", "NATS_PER_STEP, ")],
}
SETTINGS = """
[data]
name = "coins"
[model]
cell = "minimal-gated"
hidden_size = 6
num_layers = 2
tied = false
[model.head]
kind = "scaled"
start = 0.5
[noise]
family = "uniform"
std = 0.3
[train]
optimizer = "adamw"
lr = 0.02
epochs = 6
save_steps = 3
batch_size = 4
averaging = "none"
[train.terms]
sparsity = 0.01
"""


# Several commands in one process, because a process takes seconds to import torch. A star stands
# for the only folder of such a name.
ONE_AFTER_ANOTHER = """
import glob, sys
from noisin.cli import main
for command in sys.argv[1:]:
    try:
        main([word for part in command.split() for word in (glob.glob(part) or [part])])
    except SystemExit as exit:
        assert not exit.code, command
"""


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("extended")
    with extended(folder, INSERTIONS) as env:
        source = folder / "src" / "noisin"
        for name, rows in ROWS.items():
            text = (source / name).read_text()
            for before, row in rows:
                assert text.count(before) == 1, before
                text = text.replace(before, before + row)
            (source / name).write_text(text)
        with (source / "models" / "heads.py").open("a") as file:
            file.write(HEAD)
        return env


def test_the_help_names_them(env: dict[str, str]) -> None:
    shown = run(env, "-c", ONE_AFTER_ANOTHER, "--help", "train --help")
    shown = " ".join(shown.replace("│", " ").split())
    assert "sweep" in shown
    for name in ("minimal-gated", "uniform", "scaled", "coins"):
        assert name in shown, name


@pytest.mark.long
def test_they_train_survive_a_kill_and_are_reported(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(SETTINGS)
    train = "train mine.toml --threads 1 --out"
    command = [sys.executable, "-m", "noisin", *train.split(), "killed"]
    process = subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.PIPE)
    toy.wait_for(lambda: any(tmp_path.glob("killed/*/checkpoints/000004")))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    commands = [f"{train} killed", f"{train} whole", "evaluate whole/mine-*", "report whole"]
    printed = run(env, "-c", ONE_AFTER_ANOTHER, *commands, cwd=tmp_path)
    assert printed.count("nats per step") >= 2
    (killed,), (whole,) = tmp_path.glob("killed/mine-*"), tmp_path.glob("whole/mine-*")
    assert toy.result(killed) == toy.result(whole)
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["train"]["nats"] < lines[0]["train"]["nats"] < 3 * 0.75
    assert lines[-1]["terms"]["sparsity"] > 0
    assert lines[-1]["noise_std"] == pytest.approx(0.3)
    page = (tmp_path / "whole" / "report.html").read_text()
    for words in ("coins", "minimal-gated", "uniform", "sparsity 0.01", "nats per step"):
        assert words.lower() in page.lower(), words


@stress_only
def test_they_are_swept(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        SETTINGS.replace("epochs = 6", "epochs = 2") + "\n[grid]\nnoise.std = [0.1, 0.3]\n"
    )
    printed = run(env, "-m", "noisin", "sweep", "mine.toml", "--out", "swept", cwd=tmp_path)
    assert "std-0.1" in printed
    assert "std-0.3" in printed


def test_every_row_of_the_lists_loads() -> None:
    tasks = {name: row.home for name, row in TASKS.items()}
    for rows in (CELL_CLASSES, HEADS, LATENT, TERMS, tasks):
        for name in rows.values():
            assert isinstance(load_object(name), type)


# The same without touching the sources: package.module:Class


OWN = (
    CELL
    + """

from dataclasses import dataclass


@dataclass(frozen=True)
class Sign:
    gamma: float

    @property
    def variance(self):
        return self.gamma**2

    def sample(self, shape, *, like, generator=None):
        bits = torch.rand(shape, dtype=like.dtype, device=like.device, generator=generator)
        return self.gamma * (2 * (bits < 0.5).to(like.dtype) - 1)


@dataclass(frozen=True)
class Spread:
    weight: float
    name = "spread"

    def __call__(self, trace, batch):
        return self.weight * trace.emitted[-1].var()
"""
)


def test_classes_of_a_users_own_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_parts.py").write_text(OWN)
    text = tmp_path / "text"
    text.mkdir()
    for split in ("train", "valid", "test"):
        (text / f"{split}.txt").write_text("a b c d\n" * 40)
    monkeypatch.chdir(tmp_path)
    flags = {
        "data.name": "text",
        "model.cell": "own_parts:MinimalGatedUnit",
        "model.hidden_size": "6",
        "noise.family": "own_parts:Sign",
        "noise.gamma": "0.2",
        "train.terms.own_parts:Spread": "0.1",
        "train.batch_size": "4",
        "train.bptt": "10",
        "train.lr": "1",
        "train.epochs": "1",
        "threads": "1",
    }
    with pytest.raises(SystemExit) as end:
        main(["train", "manual", *(f"--{name}={value}" for name, value in flags.items())])
    assert end.value.code == 0, capsys.readouterr().err
    (metrics,) = tmp_path.glob("runs/*/metrics.jsonl")
    line = json.loads(metrics.read_text())
    assert line["terms"]["spread"] > 0
    assert line["noise_std"] == pytest.approx(0.2)


class Counting(nn.Module):
    """A cell whose state is a pair that starts with its hidden state."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size + hidden_size, hidden_size)

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        if state is None:
            zeros = x.new_zeros(*x.shape[:-1], self.linear.out_features)
            state = zeros, zeros
        h = self.linear(torch.cat([x, state[0]], -1)).tanh()
        return h, state[1] + 1


def test_a_class_can_be_given_as_it_is() -> None:
    model = LanguageModel(7, hidden_size=4, cell=Counting)
    words = torch.randint(7, (6, 3))
    _, state = model(words)
    assert len(state) == 2
    assert (state[0][1] == 6).all()
