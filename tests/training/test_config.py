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


def test_noise_of_mean_one_keeps_its_hash() -> None:
    """Whether it is rescaled makes no difference then; and only a factor has a mean."""
    plain = RunConfig.parse({"noise": {"std": 0.5}})
    same = {"std": 0.5, "mean": 1, "rescaled": False}
    assert RunConfig.parse({"noise": same}).hash() == plain.hash()
    assert "mean" not in plain.to_json()
    biased = [
        RunConfig.parse({"noise": same | {"mean": 0.8, "rescaled": rescaled}})
        for rescaled in (True, False)
    ]
    assert len({config.hash() for config in (plain, *biased)}) == 3
    assert [RunConfig.parse(json.loads(config.to_json())) for config in biased] == biased
    with pytest.raises(InvalidValue, match=r"noise.mean must be 1 for additive noise, got 0.8"):
        RunConfig.parse({"noise": {"std": 0.5, "mean": 0.8, "mode": "additive"}})
    strong = {"std": 0.5, "mean": 0.8, "feedback": False, "noisy_layers": "last"}
    with pytest.raises(InvalidValue, match=r"must be noise if noise.mean is not 1"):
        RunConfig.parse({"noise": strong, "train": {"objective": "penalty"}})


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


LATENT: dict[str, Any] = {
    "data": {"name": "jsb"},
    "model": {"tied": False, "latent": {"kind": "vrnn"}},
}
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
    (LATENT, "model.latent.kind"),
    (LATENT | {"train": {"annealing": {"epochs": 9}}}, "train.annealing.epochs"),
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
                section = {"gate_dropout": GateDropoutConfig(), "noise": NoiseConfig(std=1)}[part]
                section = section.model_dump(mode="json")
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
