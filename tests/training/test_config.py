"""Settings: what is refused, from flags and files alike, and with which words."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from noisin._util.settings import flat
from noisin.errors import InvalidValue, NoisinError
from noisin.noise import FAMILIES, ranges
from noisin.training import RunConfig
from noisin.training.config import NoiseConfig, ScheduleConfig, explain
from noisin.training.config.hash import ABSENT
from noisin.training.config.model import GateDropoutConfig
from noisin.training.config.section import Section

BAD: list[tuple[dict[str, Any], str]] = [
    ({"train": {"epochs": 6.5}}, "config: train.epochs must be a whole number, got 6.5."),
    ({"train": {"epochs": "6.5"}}, "config: train.epochs must be a whole number, got '6.5'."),
    ({"train": {"epochs": "1_000"}}, "config: train.epochs must be a whole number, got '1_000'."),
    ({"train": {"epochs": "²"}}, "config: train.epochs must be a whole number, got '²'."),
    ({"train": {"epochs": True}}, "config: train.epochs must be a whole number, got True."),
    ({"train": {"epochs": -3}}, "config: train.epochs must be 1 or more, got -3."),
    ({"train": {"epochs": "-3"}}, "config: train.epochs must be 1 or more, got -3."),
    ({"train": {"epochs": None}}, "config: train.epochs must be a valid integer, got None."),
    ({"train": {"lr": float("nan")}}, "config: train.lr must be a finite number, got nan."),
    ({"train": {"lr": float("inf")}}, "config: train.lr must be a finite number, got inf."),
    ({"train": {"lr": "nan"}}, "config: train.lr must be a number, got 'nan'."),
    ({"train": {"lr": "3O"}}, "config: train.lr must be a number, got '3O'."),
    ({"train": {"lr": False}}, "config: train.lr must be a number, got False."),
    ({"train": {"lr": "1e999"}}, "config: train.lr must be a finite number, got '1e999'."),
    ({"train": {"lr": 0}}, "config: train.lr must be more than 0.0, got 0."),
    ({"train": {"lr_decay": 0.5}}, "config: train.lr_decay must be 1.0 or more, got 0.5."),
    ({"train": {"epoch": 3}}, "config: train.epoch is not a setting. Did you mean epochs?"),
    ({"trian": {}}, "config: trian is not a setting. Did you mean train?"),
    ({"train": 3}, "config: train must be a section of settings, got 3."),
    ({"train": {"optimizer": "sdg"}}, "optimizer must be 'sgd', 'adamw' or 'adam', got 'sdg'."),
    ({"train": {"optimizer": "adamw"}}, "config: train.lr must be 1 or less with adamw, got 30."),
    ({"model": {"tied": "maybe"}}, "config: model.tied must be true or false, got 'maybe'."),
    ({"model": {"dropout": {"input": 1}}}, "config: model.dropout.input must be less than 1.0"),
    (
        {"model": {"num_layers": 1, "embedding_size": 3}},
        "config: model.embedding_size must be hidden_size (650) for one layer with tied weights",
    ),
    ({"noise": {}}, "config: noise needs gamma or std, exactly one of them, got neither."),
    ({"noise": {"gamma": 1, "std": 1}}, "exactly one of them, got both."),
    ({"noise": {"gamma": -1}}, "config: noise.Gaussian: gamma is the standard deviation"),
    ({"noise": {"std": 1e6}}, "config: noise.std must be 100000.0 or less, got 1000000.0."),
    ({"noise": {"gamma": 1, "alpha": 2}}, "config: noise.alpha is the shape of gamma and beta"),
    ({"noise": {"family": "gausian", "gamma": 1}},
     "config: noise.family must be gaussian, bernoulli, gamma, gumbel, laplace, logistic, beta, "
     "chi-square or package.module:Class, got 'gausian'. Did you mean gaussian?"),
    ({"noise": {"family": "mine:", "gamma": 1}}, "package.module:Class, got 'mine:'."),
    ({"noise": {"family": "a.b:C"}}, "noise needs gamma or std, exactly one of them, got neither"),
    ({"model": {"cell": "ltsm"}}, "model.cell must be lstm, gru, elman-tanh, elman-sigmoid, elman"),
    ({"model": {"cell": "LSTM"}}, "or package.module:Class, got 'LSTM'."),
    ({"data": {"task": "texts"}}, "config: data.task must be text, music or package.module:Class,"),
    ({"data": {"name": "jsb"}}, "model.tied must be false for music, which has no word embedding"),
    ({"data": {"task": "music"}}, "model.tied must be false for music"),
    ({"model": {"zoneout": {"p_h": 1}}}, "model.zoneout.p_h must be less than 1.0, got 1."),
    ({"model": {"zoneout": {"p": 0.1}}}, "model.zoneout.p is not a setting. Available: p_h, p_c."),
    ({"model": {"zoneout": 0.1}}, "model.zoneout must be a section of settings, got 0.1."),
    ({"model": {"cell": "gru", "zoneout": {"p_c": 0.1}}},
     "model.zoneout.p_c must be 0 for cell = 'gru', which has no memory c, got 0.1."),
    ({"model": {"cell": "highway", "zoneout": {"p_c": 0.1}}},
     "model.zoneout.p_c must be 0 for cell = 'highway', which has no memory c, got 0.1."),
    ({"model": {"cell_arguments": {"depth": 3}}},
     "model.cell_arguments must be left out for cell = 'lstm', got depth."),
    ({"model": {"cell": "highway", "cell_arguments": {"depth": float("nan")}}},
     "model.cell_arguments must have arguments that JSON can represent"),
    ({"model": {"cell": "highway", "update_dropout": {"p": 0.1}}},
     "model.update_dropout must be left out for cell = 'highway': only lstm and gru have it."),
    ({"model": {"update_dropout": {"p": 0.1}, "gate_dropout": {"x": 0.1}}},
     "model.update_dropout must be left out together with gate_dropout"),
    ({"model": {"update_dropout": {"p": 1}}}, "model.update_dropout.p must be less than 1.0"),
    ({"model": {"cell": "gru", "gate_dropout": {"x": 0.1}}},
     "model.gate_dropout must be left out for cell = 'gru': only the lstm cell has it."),
    ({"model": {"gate_dropout": {"h": 0.1}, "dropout": {"recurrent": 0.1}}},
     "model.dropout.recurrent must be 0 together with gate_dropout, got 0.1."),
    ({"model": {"weight_drop": {"p": 1}}}, "model.weight_drop.p must be less than 1.0, got 1."),
    ({"model": {"weight_drop": 0.5}}, "model.weight_drop must be a section of settings, got 0.5."),
    ({"model": {"weight_noise": {"std": -1}}}, "model.weight_noise.std must be 0.0 or more, got"),
    ({"model": {"weight_noise": {"std": 1, "per": "row"}}}, "model.weight_noise.per must be"),
    ({"model": {"weight_drop": {"p": 0.1}, "cell": "highway"}},
     "model.weight_drop must be left out together with cell = 'highway': it needs layers with"),
    ({"model": {"update_dropout": {"p": 0.1}, "weight_noise": {"std": 0.1, "per": "step"}}},
     "model.update_dropout must be left out together with weight_noise.per = 'step'"),
    ({"model": {"weight_noise": {"std": 0.1}, "gate_dropout": {"h": 0.1}}},
     "model.weight_noise must be left out together with gate_dropout"),
    ({"model": {"weight_drop": {"p": 0.1}, "weight_noise": {"std": 0.1, "per": "step"}}},
     "model.weight_drop must be left out together with weight_noise.per = 'step'"),
    ({"model": {"weight_noise": {"std": 0.1, "per": "step"}, "gate_dropout": {"h": 0.1}}},
     "model.weight_noise.per must be 'sequence' or left out together with gate_dropout"),
    ({"model": {"weight_noise": {"std": 0.1, "per": "step"}, "dropout": {"recurrent": 0.1}}},
     "model.dropout.recurrent must be 0 together with weight_noise.per = 'step', got 0.1"),
    ({"model": {"dropout": {"words": 1}}}, "model.dropout.words must be less than 1.0, got 1."),
    ({"data": {"name": "jsb"}, "model": {"tied": False, "dropout": {"words": 0.1}}},
     "model.dropout.words must be 0 for music, which has no words, got 0.1."),
    ({"train": {"terms": {"l3": 1}}}, "l3"),
    ({"model": {"head": {"experts": 3}}}, "config: model.head.kind is missing."),
    ({"model": {"head": {"kind": "mixture"}}}, "model.head.kind must be linear, mixture-of"),
    ({"model": {"head": {"kind": "a:B", "x": float("nan")}}}, "must have arguments that JSON can"),
    ({"model": {"head": {"kind": "a:B", "x": "\ud800"}}}, "must have arguments that JSON can"),
    ({"model": {"head": {"kind": "a:B", "x": object()}}}, "must have arguments that JSON can"),
    ({"model": {"embedding_size": 5, "num_layers": 1}}, "embedding_size must be hidden_size (650)"),
    ({"model": {"last_size": 5}}, "model.last_size must be the size of the embedding (650) for a"),
    ({"model": {"last_size": 5, "skip": True, "tied": False}},
     "model.last_size must be hidden_size (650) for the layers that are summed, got 5."),
    ({"model": {"embedding_size": 5, "skip": True}}, "got 5. Add a projection."),
    ({"model": {"projection": {}}}, "model.projection must be left out if the last layer has the"),
    ({"model": {"output_bias": False, "head": {"kind": "a:B"}}}, "model.output_bias must be true"),
    ({"model": {"head": {"kind": "pointer-sentinel"}}, "train": {"augmented_loss": {"gamma": 1}}},
     "train.augmented_loss must be left out with model.head.kind = 'pointer-sentinel'"),
    ({"model": {"head": {"kind": "mixture-of-softmaxes"}}, "train": {"objective": "penalty"},
      "noise": {"gamma": 1, "feedback": False, "noisy_layers": "last"}},
     "train.objective must be noise with model.head.kind = 'mixture-of-softmaxes'"),
    ({"data": {"name": "jsb"}, "model": {"tied": False, "output_bias": False}},
     "model.output_bias must be left out for music, which does not predict words."),
    ({"train": {"augmented_loss": {"gamma": -1}}}, "augmented_loss.gamma must be 0.0 or more"),
    ({"train": {"augmented_loss": {"temperature": 0}}}, "temperature must be more than 0"),
    ({"train": {"terms": {"a:B": -1}}}, "train.terms.a:B must be 0 or more, got -1."),
    ({"train": {"terms": {"a:B": "x"}}}, "train.terms.a:B must be a number, got 'x'."),
    ({"train": {"terms": {"activation": 1}}}, "package.module:Class, got 'activation'."),
    ({"train": {"terms": 3}}, "train.terms must be"),
    ({"own": {"model": {}}}, "config: own.task is missing."),
    ({"own": {"model": {}, "task": {}}, "noise": {"gamma": 1}}, "noise must be left out with own"),
    ({"own": {"model": {"x": float("inf")}, "task": {}}}, "own.model must have values that JSON"),
    ({"noise": {"family": "beta", "gamma": 1, "alpha": 0}}, "noise.Beta: alpha is the shape"),
    ({"noise": {"gamma": 1, "site": "state"}}, "noise.site must be read: state is for model.cell"),
    ({"noise": {"gamma": 1}, "train": {"objective": "penalty"}}, "train.objective must be noise, "),
    ({"train": {"objective": "penalty"}}, "train.objective must be noise if there is no"),
    ({"train": {"K": 2}}, "config: train.K must be 1 if no noise is drawn, got 2."),
    ({"train": {"optimizer": "adam"}}, "config: train.lr must be 1 or less with adam, got 30."),
    ({"train": {"beta1": 0}}, "config: train.beta1 must be left out with sgd"),
    ({"train": {"optimizer": "adam", "lr": 0.1, "beta1": 1}}, "train.beta1 must be less than 1.0"),
    ({"train": {"lr_patience": 0}}, "config: train.lr_patience must be 1 or more, got 0."),
    ({"train": {"lr_patience": 2, "lr_decay_after": 3}},
     "config: train.lr_patience must be 1 with lr_decay_after, got 2"),
    ({"train": {"state_reset": 1}}, "config: train.state_reset must be less than 1.0, got 1."),
    ({"train": {"shrink": -1}}, "config: train.shrink must be 0.0 or more, got -1."),
    ({"train": {"start": ""}}, "config: train.start must be at least 1 character"),
    ({"train": {"averaging": "tta"}}, "'from_start', 'nt' or 'two_tailed', got 'tta'."),
    ({"data": {"name": "jsb"}, "model": {"tied": False}, "train": {"partial_shuffle": True}},
     "config: train.partial_shuffle must be left out for music, whose batches are whole pieces"),
    ({"data": {"name": "jsb"}, "model": {"tied": False}, "train": {"state_reset": 0.1}},
     "config: train.state_reset must be left out for music"),
    ({"train": {"objective": "importance"}, "noise": {"gamma": 1}},
     "config: train.K must be 2 or more with objective = 'importance'"),
    ({"train": {"importance": {"group": "token"}}},
     "train.importance must be left out with objective = 'noise'. Set objective = 'importance'."),
    ({"train": {"objective": "importance", "K": 2, "importance": {"group": "word"}}},
     "train.importance.group must be 'window' or 'token', got 'word'."),
    ({"train": {"objective": "penalty", "fraternal": {}}, "noise": {"gamma": 1, "feedback": False,
     "noisy_layers": "last"}}, "train.fraternal must be left out with objective = 'penalty'."),
    ({"train": {"objective": "fraternal", "fraternal": {"kappa": -1}}},
     "train.fraternal.kappa must be 0.0 or more, got -1."),
    ({"seed": 2**32}, "config: seed must be 4294967295 or less, got 4294967296."),
    ({"data": {"name": ""}}, "config: data.name must be"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "message"), BAD, ids=lambda v: str(v)[:40])
def test_what_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue) as error:
        RunConfig.parse(values)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_all_mistakes_are_in_one_message() -> None:
    with pytest.raises(InvalidValue) as error:
        RunConfig.parse({"train": {"epochs": 0, "clipp": 1}, "seed": "x"}, "mine.toml")
    assert str(error.value).splitlines() == [
        "mine.toml: config: 3 settings are wrong.",
        "  train.epochs must be 1 or more, got 0.",
        "  train.clipp is not a setting. Did you mean clip?",
        "  seed must be a whole number, got 'x'.",
    ]


def test_what_noise_itself_would_say() -> None:
    for family, name in ranges.LAWS.items():
        for wrong in (-1.0, 0.0, 2.0, 1e300):
            said = configured = "nothing"
            try:
                ranges.check(name, "gamma", wrong)
            except NoisinError as error:
                said = str(error)
            try:
                NoiseConfig(family=family, gamma=wrong)
            except NoisinError as error:
                configured = str(error).removeprefix("config: ")
            assert configured == said


def test_the_families_are_those_that_there_are() -> None:
    assert {family: law.__name__ for family, law in FAMILIES.items()} == ranges.LAWS


def test_text_reads_as_numbers() -> None:
    """A flag is text; a file holds numbers."""
    flags = RunConfig.parse({"train": {"epochs": "7", "lr": "2e1"}, "model": {"tied": "false"}})
    files = RunConfig.parse({"train": {"epochs": 7, "lr": 20}, "model": {"tied": False}})
    assert flags == files
    assert flags.hash() == files.hash()


def test_files(tmp_path: Path) -> None:
    toml = tmp_path / "run.toml"
    toml.write_text('seed = 7\n[noise]\nfamily = "gumbel"\nstd = 0.5\n[train]\nlr = 20\n')
    config = RunConfig.from_toml(toml)
    assert config == RunConfig.parse(
        {"seed": 7, "noise": {"family": "gumbel", "std": 0.5}, "train": {"lr": 20}}
    )
    (tmp_path / "run.json").write_text(config.to_json())
    assert RunConfig.from_json(tmp_path / "run.json") == config
    assert json.loads(config.to_json())["train"]["bptt"] == 35


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"seed = ", "cannot be parsed"),
        (b"\xff\xfe", "cannot be parsed"),
        (b"[train]\nlr = nan", "train.lr must be a finite number"),
        (b"a = " + b"[" * 100_000, "run.toml"),
        (b"seed = 3\nseed = 4", "cannot be parsed"),
    ],
)
def test_bad_files(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(content)
    with pytest.raises(InvalidValue, match=message):
        RunConfig.from_toml(tmp_path / "run.toml")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="No such file"):
        RunConfig.from_toml(tmp_path / "no.toml")
    with pytest.raises(InvalidValue, match="Is a directory"):
        RunConfig.from_toml(tmp_path)
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(InvalidValue, match="must contain settings by name"):
        RunConfig.from_json(tmp_path / "list.json")


def test_a_config_is_frozen() -> None:
    with pytest.raises(ValidationError):
        RunConfig().train.lr = 3.0


def test_the_defaults_are_the_papers_recipe() -> None:
    config = RunConfig()
    train = config.train
    assert (train.bptt, train.batch_size, train.clip, train.lr) == (35, 80, 0.25, 30)
    assert (train.lr_decay, train.epochs, train.weight_decay, train.K) == (1.2, 200, 0, 1)
    assert (train.optimizer, train.averaging, config.seed) == ("sgd", "from_start", 1111)
    assert (config.model.cell, config.model.num_layers, config.model.tied) == ("lstm", 2, True)


def test_every_setting_says_what_it_is() -> None:
    def check(section: Any) -> None:
        for name, field in section.model_fields.items():
            inner = field.annotation
            kinds = [k for k in (inner, *get_args(inner)) if isinstance(k, type)]
            sections = [k for k in kinds if issubclass(k, Section)]
            for found in sections:
                check(found)
            if inner not in sections:
                assert field.description, f"{section.__name__}.{name}"
                assert field.description.endswith(".")

    check(RunConfig)


def test_what_a_hash_sees() -> None:
    base = RunConfig()
    longer = RunConfig.parse({"train": {"epochs": 300, "minutes": 5, "patience": 3}})
    elsewhere = RunConfig.parse({"data": {"folder": "/data"}, "train": {"save_minutes": 1}})
    other = RunConfig.parse({"train": {"clip": 0.3}})
    assert base.hash() == elsewhere.hash()
    assert base.hash() != longer.hash()
    assert base.hash(limits=False) == longer.hash(limits=False)
    assert base.hash(limits=False) != other.hash(limits=False)
    assert base.differences(other) == ["train.clip = 0.25 and 0.3"]
    assert base.differences(longer) == base.differences(elsewhere) == []
    noisy = RunConfig.parse({"noise": {"gamma": 1}})
    assert "noise.gamma = None and 1.0" in base.differences(noisy)


def test_the_hash_of_settings_stays_what_it_was() -> None:
    """Otherwise existing runs could not continue. A new setting belongs in ``hash.ABSENT``."""
    config = RunConfig.parse({"noise": {"gamma": 0.5}})
    assert RunConfig().hash() == "5403a527240b93ce1419e62ddcc9a6da920804a46f91809a68e02c7b576052b4"
    assert (
        config.hash(limits=False)
        == "f1b5e61b5e56dfe734b00281415ca192def87d4971d5e3bbc88a0d93a9488e40"
    )


def test_gate_dropout_keeps_its_hash() -> None:
    """That of the version before masks could be locked, shared, or on what the products read."""
    rates = {"x": 0.5, "h": 0.4}
    hashes = [
        RunConfig.parse({"model": {"gate_dropout": {**rates, **more}}}).hash()
        for more in ({}, {"locked": False, "site": "after"}, {"locked": True}, {"site": "before"})
    ]
    assert hashes[0] == "81703662d71a113353e0764dd7ecdc48fb01107faebbd1f5f9c0bfd93d7f7c87"
    assert hashes[0] == hashes[1]
    assert len({*hashes}) == 3


OPTIONAL: list[tuple[dict[str, Any], str]] = [
    ({"data": {"task": "text"}}, "data.task"),
    ({"model": {"zoneout": {"p_h": 0.1}}}, "model.zoneout.p_h"),
    ({"model": {"gate_dropout": {"x": 0.5}}}, "model.gate_dropout.x"),
    ({"model": {"weight_drop": {"p": 0.5}}}, "model.weight_drop.p"),
    ({"model": {"weight_noise": {"std": 0.5}}}, "model.weight_noise.std"),
    ({"train": {"terms": {"l2": 1e-6}}}, "train.terms.l2"),
    ({"model": {"update_dropout": {"p": 0.5}}}, "model.update_dropout.p"),
    ({"model": {"cell": "highway", "cell_arguments": {"depth": 10}}}, "model.cell_arguments.depth"),
    ({"model": {"head": {"kind": "mine.heads:Mixture", "experts": 15}}}, "model.head.experts"),
    ({"model": {"last_size": 7, "tied": False}}, "model.last_size"),
    ({"model": {"embedding_size": 7, "projection": {"dropout": 0.1}}}, "model.projection.dropout"),
    ({"train": {"augmented_loss": {"gamma": 0.5}}}, "train.augmented_loss.gamma"),
    ({"train": {"terms": {"mine.terms:Slow": 2.0}}}, 'train.terms."mine.terms:Slow"'),
    ({"train": {"objective": "importance", "K": 2}}, "train.importance.group"),
    ({"train": {"partial_shuffle": True}}, "train.partial_shuffle"),
    ({"train": {"state_reset": 0.01}}, "train.state_reset"),
    ({"train": {"lr_patience": 3}}, "train.lr_patience"),
    ({"train": {"lr_decay_after": 20}}, "train.lr_decay_after"),
    ({"train": {"shrink": 1e-7}}, "train.shrink"),
    ({"train": {"start": "runs/base"}}, "train.start"),
    ({"train": {"objective": "fraternal"}}, "train.fraternal.kappa"),
    ({"own": {"model": {"name": "mine"}, "task": {"name": "series"}}}, "own.model.name"),
]


@pytest.mark.parametrize(("values", "name"), OPTIONAL, ids=[name for _, name in OPTIONAL])
def test_an_optional_section(values: dict[str, Any], name: str) -> None:
    """Absent, it is in neither the hash nor the file; present, it is in both and survives."""
    plain, config = RunConfig(), RunConfig.parse(values)
    assert name not in plain.settings()
    assert name in config.settings()
    assert config.hash(limits=False) != plain.hash(limits=False)
    off = ABSENT.get(name)
    assert any(line.startswith(f"{name} = {off!r} and ") for line in plain.differences(config))
    assert set(flat(json.loads(plain.to_json()))).isdisjoint(ABSENT)
    again = RunConfig.parse(json.loads(config.to_json()))
    assert again == config
    assert hash(again) == hash(config)
    assert again.hash() == config.hash()
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    "values",
    [
        {"data": {"task": None}},
        {"model": {"zoneout": None}},
        {"model": {"zoneout": {}}},
        {"model": {"zoneout": {"p_h": "0", "p_c": 0.0}}},
        {"model": {"gate_dropout": {"x": 0, "h": 0}}},
        {"model": {"weight_drop": {"p": 0, "inputs": True}}},
        {"model": {"weight_noise": {"std": 0, "mode": "multiplicative", "per": "step"}}},
        {"model": {"dropout": {"words": 0, "words_shared": True}}},
        {"model": {"gate_dropout": {"x": 0, "locked": True, "site": "before"}}},
        {"model": {"update_dropout": {"p": 0, "locked": True}}},
        {"model": {"cell_arguments": {}}},
        {"model": {"head": {"kind": "linear"}}},
        {"model": {"skip": False, "output_bias": True, "projection": None}},
        {"train": {"augmented_loss": {"gamma": 0}}},
        {"train": {"terms": {}}},
        {"train": {"terms": {"mine.terms:Slow": 0}}},
    ],
    ids=str,
)
def test_off_is_absent(values: dict[str, Any]) -> None:
    assert RunConfig.parse(values) == RunConfig()
    assert RunConfig.parse(values).hash() == RunConfig().hash()


def test_a_start_is_one_folder_however_it_is_written() -> None:
    configs = [RunConfig.parse({"train": {"start": s}}) for s in ("runs/a", "./runs//a/")]
    assert configs[0] == configs[1]


def test_every_optional_setting_is_off_by_default() -> None:
    """Otherwise leaving it out of the hash would confuse two settings."""
    values = RunConfig().model_dump(mode="json")
    for name, off in ABSENT.items():
        *sections, last = name.split(".")
        section = values
        for part in sections:
            section = section[part]
            if section is None:  # off as a whole
                section = GateDropoutConfig().model_dump(mode="json")
        assert section[last] == off, name


def test_a_class_is_not_loaded_by_a_config() -> None:
    """A record is read where the class is not installed."""
    config = RunConfig.parse(
        {
            "noise": {"family": "nowhere.noises:Mine", "gamma": 3.0, "alpha": 1.0},
            "model": {"cell": "nowhere:Cell", "tied": "false", "head": {"kind": "nowhere:Head"}},
            "train": {"terms": {"nowhere:Term": "0.5"}},
            "data": {"task": "nowhere:Task"},
        }
    )
    assert config.noise is not None
    assert (config.noise.law, config.noise.known_gamma, config.noise.known_std) == (None, 3.0, None)
    assert config.data.task_class == "nowhere:Task"
    assert config.model.head is not None
    assert config.model.head.arguments == {}


def test_the_task_is_that_of_the_data() -> None:
    music = RunConfig.parse({"data": {"name": "jsb"}, "model": {"tied": False}})
    assert music.data.task_class == "noisin.tasks.music:Music"
    assert RunConfig().data.task_class == "noisin.tasks.text:Text"
    given = RunConfig.parse({"data": {"name": "jsb", "task": "text"}})
    assert given.data.task_class == "noisin.tasks.text:Text"


def test_terms_cannot_be_changed() -> None:
    terms = RunConfig.parse({"train": {"terms": {"a:B": 1}}}).train.terms
    with pytest.raises(TypeError, match="cannot be changed"):
        terms["a:B"] = 2.0
    with pytest.raises(TypeError, match="cannot be changed"):
        terms.update({})


def test_pydantic_called_by_others() -> None:
    """As cyclopts does: its error can be said in our words."""
    with pytest.raises(ValidationError) as error:
        TypeAdapter(RunConfig).validate_python({"train": {"epochs": "six"}})
    assert str(explain(error.value)) == ("config: train.epochs must be a whole number, got 'six'.")


scalars = (
    st.just("a.b:C") | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
)
names = st.sampled_from(["train", "noise", "model", "data", "seed", "lr", "gamma", "epochs", "K"])
names |= st.sampled_from(["own", "zoneout", "p_h", "head", "kind", "terms", "a.b:C", "task"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names | st.text(max_size=4), inner),
    max_leaves=8,
)


@given(st.dictionaries(names | st.text(max_size=4), values))
@settings(max_examples=150, deadline=None)
def test_whatever_is_given_is_taken_or_refused(given_values: dict[str, Any]) -> None:
    try:
        config = RunConfig.parse(given_values)
    except NoisinError:
        return
    assert RunConfig.parse(json.loads(config.to_json())) == config


def test_schedules() -> None:
    with pytest.raises(InvalidValue, match="start must be 1.0 or less"):
        ScheduleConfig(kind="linear", start=2)
