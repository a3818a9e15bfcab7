"""Flags: one for each setting, with its default, and no more."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from noisin.cli.settings import nested
from noisin.cli.train import train
from noisin.experiments.presets import Preset
from noisin.training.config import RunConfig
from tests.cli.run import in_process


def leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= leaves(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


ALL = leaves(RunConfig(noise={"gamma": 0.5}).model_dump())


def test_every_setting_is_a_flag_and_in_the_help(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    parameters = set(inspect.signature(train).parameters) - {"preset", "out"}
    assert parameters == {name.replace(".", "__") for name in ALL}
    assert in_process("train", "--help") == 0
    shown = capsys.readouterr().out
    for name, default in ALL.items():
        if name in ("noise.gamma",) or default is None:
            assert f"--{name} " in shown
            continue
        value = str(default).lower() if isinstance(default, bool) else str(default)
        help_of = re.search(rf"--{re.escape(name)} .*?(?=│ --|╰)", shown, re.DOTALL)
        assert help_of is not None, name
        told = " ".join(help_of.group().replace("│", " ").split())
        assert f"[default: {value}]" in told, name
    assert "compare" in shown


def test_flags_reach_the_config() -> None:
    """Each setting, given as text, has that value; the rest keep theirs."""
    changed = {
        "data.name": "ptb",
        "model.tied": "false",
        "model.dropout.between": "0.25",
        "noise.family": "chi-square",
        "noise.gamma": "0.3",
        "noise.feedback": "false",
        "noise.schedule.kind": "linear",
        "train.epochs": "7",
        "train.tokens": "1000",
        "train.lr": "1e-1",
        "train.K": "3",
        "seed": "5",
    }
    flags = dict.fromkeys((name.replace(".", "__") for name in ALL), None)
    flags |= {name.replace(".", "__"): value for name, value in changed.items()}
    config = Preset("x", {}).configs(nested(flags))["x"]
    got = leaves(config.model_dump())
    parsed = {"false": False, "0.25": 0.25, "0.3": 0.3, "7": 7, "1000": 1000, "1e-1": 0.1}
    parsed |= {"3": 3, "5": 5}
    expected = ALL | {name: parsed.get(value, value) for name, value in changed.items()}
    assert got == expected


def test_nothing_given() -> None:
    assert nested({"seed": None, "train__lr": None}) == {}
