"""Presets: those shipped are the paper's, and files are merged as one would expect."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from noisin.errors import NoisinError
from noisin.experiments import presets
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
    assert name == "compare" or name.startswith(first.data.name)


# Units, and the gammas of the paper's tables for noise alone and for noise with dropout.
PAPER = {
    "ptb-medium": (650, 1.10, 0.53),
    "ptb-large": (1500, 1.37, 0.92),
    "wikitext-2-medium": (650, 1.00, 0.50),
    "wikitext-2-large": (1500, 1.37, 0.69),
}


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_tables(name: str) -> None:
    units, gamma, with_dropout = PAPER[name]
    plain, noise, dropout, both = (
        presets.read(f"{name}{suffix}").configs()[f"{name}{suffix}"]
        for suffix in ("", "-gaussian", "-dropout", "-dropout-gaussian")
    )
    corpus = name.rsplit("-", 1)[0]
    for config in (plain, noise, dropout, both):
        assert (config.model.hidden_size, config.model.num_layers) == (units, 2)
        assert config.data.name == corpus
        assert config.train == RunConfig().train, "the paper's recipe is the default"
        rates = config.model.dropout
        expected = (0.5, 0.4, 0.5, 0.0) if config in (dropout, both) else (0.0,) * 4
        assert (rates.input, rates.between, rates.output, rates.recurrent) == expected
    assert plain.noise is dropout.noise is None
    assert noise.noise is not None
    assert both.noise is not None
    assert (noise.noise.gamma, both.noise.gamma) == (gamma, with_dropout)
    assert noise.noise.family == both.noise.family == "gaussian"


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
        (b"sead = 3", "sead is no setting. Did you mean seed?"),
        (b"[train]\nepochs = true", "train.epochs must be a whole number, got True"),
        (b"[train]\nlr = nan", "train.lr must be a finite number"),
        (b"train = 3", "train must be a section of settings, got 3"),
        (b"noise = 3", "noise must be a section of settings, got 3"),
        (b"base = 3", "base must be a preset"),
        (b'base = "ptb"', "base must be a preset"),
        (b"compare = 3", r"\[compare\] must hold sections"),
        (b"[compare]\na = 3", r"\[compare\] must hold sections"),
        (b'[compare."../a"]\nseed = 3', "named by letters, digits"),
        (b"[compare.a]\nsead = 3", "bad: a: .*sead is no setting"),
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


def test_the_docs_name_every_preset() -> None:
    named = re.findall(r"`([a-z0-9-]+|\.\.\.[a-z-]+)`", DOCS.read_text().split("| preset |")[1])
    suffixes = [name.removeprefix("...") for name in named if name.startswith("...")]
    bases = [name for name in named if not name.startswith("...")]
    known = {*bases, *(base + suffix for base in bases for suffix in suffixes)}
    assert set(presets.names()) <= known
