"""Flags: one for each setting, with its default, and no more."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from noisin._util.settings import flat
from noisin.cli.settings import nested
from noisin.cli.train import train
from noisin.experiments.presets import Preset
from noisin.training.config import RunConfig
from noisin.training.config.model import GateDropoutConfig
from tests.cli.run import in_process

SECTIONS = {
    "noise": {"gamma": 0.5},
    "model": {
        "zoneout": {"p_h": 0.1},
        "update_dropout": {"p": 0.1},
        "head": {"kind": "mine.heads:Head"},
    },
}
BASE = flat(RunConfig.parse(SECTIONS).model_dump(exclude={"own"}))
ALL = {name: value for name, value in BASE.items() if name != "model.gate_dropout"}
ALL |= flat({"model.gate_dropout": GateDropoutConfig(x=0.1).model_dump()})  # not with updates
OPEN = {"train.terms", "model.head", "model.cell_arguments"}  # settings of any name
GIVEN = {"noise.gamma", "model.zoneout.p_h", "model.gate_dropout.x", "model.head.kind"}
GIVEN |= {"model.update_dropout.p"}


def test_every_setting_is_a_flag_and_in_the_help(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    parameters = set(inspect.signature(train).parameters) - {"preset", "out"}
    assert parameters == {name.replace(".", "__") for name in {*ALL, *OPEN}}
    assert in_process("train", "--help") == 0
    shown = capsys.readouterr().out
    for name, default in ALL.items():
        if name in GIVEN or default is None:
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
    flags: dict[str, Any] = dict.fromkeys((name.replace(".", "__") for name in ALL), None)
    flags |= {name.replace(".", "__"): value for name, value in changed.items()}
    config = Preset("x", SECTIONS).configs(nested(flags))["x"]
    got = flat(config.model_dump(exclude={"own"}))
    parsed = {"false": False, "0.25": 0.25, "0.3": 0.3, "7": 7, "1000": 1000, "1e-1": 0.1}
    parsed |= {"3": 3, "5": 5}
    expected = BASE | {name: parsed.get(value, value) for name, value in changed.items()}
    assert got == expected


def config_of(monkeypatch: pytest.MonkeyPatch, *flags: str) -> RunConfig:
    """What ``noisin train`` makes of flags."""
    configs: list[RunConfig] = []

    def keep(self: Preset, flags: Any) -> Any:
        configs.extend(original(self, flags).values())
        raise KeyboardInterrupt

    original = Preset.configs
    monkeypatch.setattr(Preset, "configs", keep)
    assert in_process("train", "manual", *flags) == 130
    return configs[0]


def test_flags_make_optional_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(
        monkeypatch,
        *("--model.zoneout.p_h", "0.05", "--model.gate_dropout.h=0.4"),
        *("--model.head.kind", "mine.heads:Mixture", "--model.head.experts", "15"),
        *("--model.head.name", "wide", "--model.head.bias", "false"),
        *("--train.terms.mine:Slow", "2", "--train.terms.mine:Fast", "1e-1"),
        *("--noise.family", "mine.noises:Uniform", "--noise.std", "0.5"),
    )
    assert config.model.zoneout is not None
    assert (config.model.zoneout.p_h, config.model.zoneout.p_c) == (0.05, 0.0)
    assert config.model.gate_dropout is not None
    assert config.model.gate_dropout.h == 0.4
    assert config.model.head is not None
    assert config.model.head.kind == "mine.heads:Mixture"
    assert config.model.head.arguments == {"experts": 15, "name": "wide", "bias": False}
    assert config.train.terms == {"mine:Slow": 2.0, "mine:Fast": 0.1}
    assert config.noise is not None
    assert config.noise.family == "mine.noises:Uniform"


def test_a_name_with_dots_is_given_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(monkeypatch, "--train.terms", '{"mine.terms:Slow": 2.0}')
    assert config.train.terms == {"mine.terms:Slow": 2.0}


def test_no_section_without_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(monkeypatch)
    assert config.model.zoneout is config.model.gate_dropout is config.model.head is None
    assert config.train.terms == {}


def test_nothing_given() -> None:
    assert nested({"seed": None, "train__lr": None}) == {}
