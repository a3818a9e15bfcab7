"""Presets: those shipped are the paper's, and files are merged as one would expect."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import pytest

from noisin.errors import NoisinError
from noisin.experiments import presets
from noisin.experiments.paper import recipes, zoo
from noisin.training.config import RunConfig

DOCS = Path(__file__).parents[2] / "docs" / "command-line.md"


def test_the_main_job_compares_three() -> None:
    """The same model, text and recipe, but for noise and dropout."""
    configs = presets.read(presets.MAIN_JOB).configs()
    plain, noise, dropout = configs.values()
    assert plain.noise is None
    assert plain.model.dropout == RunConfig().model.dropout
    assert noise.noise is not None
    assert noise.model_copy(update={"noise": None}) == plain
    assert dropout.model.dropout.output > 0
    model = dropout.model.model_copy(update={"dropout": plain.model.dropout})
    assert dropout.model_copy(update={"model": model}) == plain
    assert plain.data.name == "manual"


@pytest.mark.parametrize("name", presets.names())
def test_each_preset_is_whole(name: str) -> None:
    configs = presets.read(name).configs()
    assert configs
    first = next(iter(configs.values()))
    assert first.data.name in (
        *("manual", "ptb", "wikitext-2", "bikes", "ett"),
        *("jsb", "nottingham", "musedata", "piano-midi"),
    )
    assert name == "compare" or list(configs) == [name]


def test_flags_go_over_a_preset() -> None:
    preset = presets.read("ptb-medium-gaussian")
    config = preset.configs({"noise": {"std": "0.7"}, "train": {"epochs": "3"}})[preset.name]
    assert config.noise is not None
    assert (config.noise.gamma, config.noise.std) == (None, 0.7)
    assert config.train.epochs == 3
    assert config.model.hidden_size == 650


def test_a_file_over_a_preset_over_another(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('base = "ptb-large-dropout"\n[model]\nhidden_size = 10\n')
    config = presets.read(str(path)).configs()["mine"]
    assert (config.model.hidden_size, config.data.name) == (10, "ptb")
    assert config.model.dropout.input == 0.5


def test_a_file_of_the_name_of_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "manual.toml"
    path.write_text('base = "manual"\nseed = 3\n')
    assert presets.read(str(path)).configs()["manual"].seed == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"seed = ", "is not TOML"),
        (b"\xff\xfe", "is not TOML"),
        (b"[" * 100_000, "is not TOML"),
        (b"sead = 3", "sead is not a setting. Did you mean seed?"),
        (b"[train]\nepochs = true", "train.epochs must be a whole number, got True"),
        (b"[train]\nlr = nan", "train.lr must be a finite number"),
        (b"train = 3", "train must be a section of settings, got 3"),
        (b"noise = 3", "noise must be a section of settings, got 3"),
        (b"base = 3", "base must be a preset"),
        (b'base = "ptb"', "base must be a preset"),
        (b"compare = 3", r"\[compare\] must contain sections"),
        (b"[compare]\na = 3", r"\[compare\] must contain sections"),
        (b'[compare."../a"]\nseed = 3', "named by letters, digits"),
        (b"[compare.a]\nsead = 3", "bad: a: .*sead is not a setting"),
    ],
)
def test_bad_files(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(NoisinError, match=message):
        presets.read(str(path)).configs()


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(NoisinError, match="got a folder or a device"):
        presets.read(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")  # to open it would be to wait for somebody who writes
    with pytest.raises(NoisinError, match="pipe: expected a text file, got a folder or a device"):
        presets.read(str(tmp_path / "pipe"))
    with pytest.raises(NoisinError, match="no preset or TOML file 'xxx"):
        presets.read("x" * 5000)
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(NoisinError, match="link: cannot be read: No such file"):
        presets.read(str(tmp_path / "link"))


def test_the_file_in_the_docs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    path = tmp_path / "example.toml"
    path.write_text(example)
    plain, weak, strong = presets.read(str(path)).configs().values()
    assert plain.noise is not None
    assert weak.noise is not None
    assert strong.noise is not None
    assert (plain.noise.gamma, weak.noise.gamma, strong.noise.gamma) == (0.0, 0.9, 0.9)
    assert (weak.noise.feedback, strong.noise.feedback) == (True, False)


def test_the_names_are_those_of_files_and_recipes() -> None:
    assert set(presets.names()) == {
        *("compare", "manual", "jsb", "nottingham", "musedata", "piano-midi", "bikes", "ett"),
        *recipes.RECIPES,
        *zoo.RECIPES,
    }
    assert len(presets.names()) == len(set(presets.names()))


def test_the_docs_and_the_help_tell_every_name() -> None:
    """By a pattern and its parts: all that it spells out are presets, and the rest is listed."""
    shown = DOCS.read_text().split("| preset |")[1]
    told = presets.known()
    spelt = {
        "-".join(part for part in parts if part)
        for parts in itertools.product(
            recipes.PARTS["CORPUS"],
            recipes.PARTS["SIZE"],
            ("", *recipes.PARTS["DROPOUT"]),
            ("", *recipes.PARTS["NOISE"]),
        )
    }
    for page in (shown, told):
        words = re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*", page)
        assert {kind for kinds in recipes.PARTS.values() for kind in kinds} <= set(words)
        assert recipes.PATTERN in page
        assert spelt <= set(presets.names())
        assert set(presets.names()) - spelt <= set(words)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ptb-medium-gausian", "ptb-medium-gaussian"),
        ("wikitext-2-large", "wt2-large"),
        ("wt2-large-dropot-beta", "wt2-large-dropout-beta"),
        ("figure-1-noisy", "figure1-noisy"),
    ],
)
def test_a_name_that_is_nearly_right(name: str, meant: str, tmp_path: Path) -> None:
    with pytest.raises(NoisinError, match=f"Did you mean '{meant}'"):
        presets.read(name)
    path = tmp_path / "mine.toml"
    path.write_text(f'base = "{name}"')
    with pytest.raises(NoisinError, match=f"base must be a preset, got .* Did you mean '{meant}'"):
        presets.read(str(path))


def test_a_name_that_is_far_off_is_told_the_pattern() -> None:
    with pytest.raises(NoisinError, match="Available: bikes, compare, ett, jsb, manual") as caught:
        presets.read("xyz")
    assert len(str(caught.value)) < 1100
