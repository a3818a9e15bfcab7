"""Flags: one for each setting, with its default, and no more."""

from __future__ import annotations

import inspect
import re
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from noisin._util.settings import flat
from noisin.cli.settings import nested
from noisin.cli.train import train
from noisin.experiments.presets import Preset
from noisin.training.config import RunConfig
from tests.cli.run import in_process

SECTIONS = {
    "noise": {"gamma": 0.5},
    "model": {
        "zoneout": {"p_h": 0.1},
        "update_dropout": {"p": 0.1},
        "head": {"kind": "mine.heads:Head"},
        "embedding_size": 3,
        "projection": {"dropout": 0.1},
    },
    "train": {"augmented_loss": {"gamma": 0.5}},
}
OPEN = {"train.terms", "model.head", "model.cell_arguments"}  # settings of any name
ALL = flat(RunConfig.parse(SECTIONS).model_dump(exclude={"own"}))


def defaults(section: type[BaseModel], prefix: str = "") -> dict[str, Any]:
    """The default of every setting, by its dotted name; None for those that have to be given."""
    found: dict[str, Any] = {}
    for name, field in section.model_fields.items():
        inner = [t for t in (field.annotation, *get_args(field.annotation)) if isinstance(t, type)]
        inner = [t for t in inner if issubclass(t, BaseModel)]
        if inner:
            found |= defaults(inner[0], f"{prefix}{name}.")
        elif f"{prefix}{name}" not in OPEN:
            found[f"{prefix}{name}"] = None if field.is_required() else field.default
    return found


EVERY = {n: v for n, v in defaults(RunConfig).items() if not n.startswith("own.")}


def test_every_setting_is_a_flag_and_in_the_help(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    parameters = set(inspect.signature(train).parameters) - {"preset", "out", "dry_run"}
    assert parameters == {name.replace(".", "__") for name in {*EVERY, *OPEN}}
    assert in_process("train", "--help") == 0
    shown = capsys.readouterr().out
    for name, default in EVERY.items():
        if default is None:
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
    expected = ALL | {name: parsed.get(value, value) for name, value in changed.items()}
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


def test_flags_make_random_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(
        monkeypatch,
        *("--model.weight-drop.p", "0.5", "--model.weight_noise.std", "0.1"),
        *("--model.weight_noise.mode=multiplicative", "--model.dropout.words", "0.2"),
        *("--model.dropout.words_shared", "true", "--train.terms.l2", "1e-6"),
    )
    assert config.model.weight_drop is not None
    assert (config.model.weight_drop.p, config.model.weight_drop.inputs) == (0.5, False)
    assert config.model.weight_noise is not None
    assert (config.model.weight_noise.std, config.model.weight_noise.per) == (0.1, "sequence")
    assert config.model.weight_noise.mode == "multiplicative"
    assert (config.model.dropout.words, config.model.dropout.words_shared) == (0.2, True)
    assert config.train.terms == {"l2": 1e-6}


def test_a_name_with_dots_is_given_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(monkeypatch, "--train.terms", '{"mine.terms:Slow": 2.0}')
    assert config.train.terms == {"mine.terms:Slow": 2.0}


def test_no_section_without_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(monkeypatch)
    assert config.model.zoneout is config.model.gate_dropout is config.model.head is None
    assert config.train.terms == {}


def test_nothing_given() -> None:
    assert nested({"seed": None, "train__lr": None}) == {}
