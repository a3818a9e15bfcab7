"""The constructors of the stacks and cells: torch's arguments by name, and the noise's."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any, get_overloads

import pytest
from torch import nn

import noisin
from tests.pairwise import stress_only

NAMES = ("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell")
NOISE = {"noise", "mode", "feedback", "share", "generator"}


def torchs_parameters(kind: type[nn.Module]) -> dict[str, inspect.Parameter]:
    """What torch's constructor takes: that of its first overload, where it has some."""
    overloads = get_overloads(kind.__init__)
    signature = inspect.signature(overloads[0] if overloads else kind.__init__)
    return {name: p for name, p in signature.parameters.items() if name != "self"}


@pytest.mark.parametrize("name", NAMES)
def test_a_constructor_takes_torchs_arguments_in_torchs_order(name: str) -> None:
    theirs = torchs_parameters(getattr(nn, name))
    ours = inspect.signature(getattr(noisin, name)).parameters
    positional = [p for p in ours.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [p.name for p in positional] == list(theirs)
    for parameter in positional:
        assert parameter.default == theirs[parameter.name].default, parameter.name
    extra = NOISE | ({"noisy_layers"} if "Cell" not in name else set())
    extra |= {"site"} if "GRU" in name else set()
    assert {p.name for p in ours.values() if p.kind is p.KEYWORD_ONLY} == extra
    assert len(ours) == len(theirs) + len(extra), "no *args and no **kwargs"


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_is_documented(name: str) -> None:
    kind = getattr(noisin, name)
    documented = inspect.getdoc(kind).partition("Args:")[2]
    for argument in inspect.signature(kind).parameters:
        assert argument in documented


USER = """
import torch
from torch.nn.utils.rnn import PackedSequence
import noisin

def use(x: torch.Tensor, packed: PackedSequence) -> None:
    lstm, gru = noisin.LSTM(2, 3, noise=noisin.noise.Gaussian(0.5)), noisin.GRU(2, 3, site="read")
    cell = noisin.LSTMCell(2, 3)
    reveal_type(lstm(x))
    reveal_type(lstm(packed)[0])
    reveal_type(gru(x)[1])
    reveal_type(gru.forward(x, samples=2)[0])
    reveal_type(cell(x))
    noisin.GRU(2, 3, nois=None)
    lstm(x, epsilon=x)
"""
PAIR = "tuple[torch._tensor.Tensor, torch._tensor.Tensor]"
REVEALED = [
    f"tuple[torch._tensor.Tensor, {PAIR}]",
    "torch.nn.utils.rnn.PackedSequence",
    "torch._tensor.Tensor",
    "torch._tensor.Tensor",
    PAIR,
]


@stress_only
def test_a_type_checker_knows_calls_and_constructors(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    file = tmp_path / "user.py"
    file.write_text(USER)
    root: Any = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", root / "pyproject.toml", file],
        capture_output=True, text=True, cwd=root, check=False,
    )  # fmt: skip
    notes = [line for line in run.stdout.splitlines() if "Revealed type" in line]
    for note, revealed in zip(notes, REVEALED, strict=True):
        assert revealed in note
    for wrong in ("nois", "epsilon"):
        assert f'error: Unexpected keyword argument "{wrong}"' in run.stdout
