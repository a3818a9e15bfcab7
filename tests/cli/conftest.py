"""A small corpus, and runs on it that are trained once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from noisin.recurrent.kernels import build
from tests.cli.run import in_process

SENTENCES = ["the cat sat on the mat\n", "a dog <unk> in the sun\n", "the dog saw a cat\n", "\n"]
SMALL = ("--model.hidden_size", "8", "--train.batch_size", "4", "--train.lr", "5", "--threads", "1")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of these tests' own, with the kernel, which takes long to compile, in it."""
    place = tmp_path_factory.mktemp("cache")
    if library := build.compiled():
        shutil.copytree(library.parent, place / "kernels")
    return place


@pytest.fixture(autouse=True)
def _use_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISIN_CACHE", str(cache))


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of text."""
    folder = tmp_path_factory.mktemp("text") / "cats"
    folder.mkdir()
    for i, split in enumerate(("train", "valid", "test")):
        lines = [SENTENCES[(j * j + i) % 4] for j in range(90 if split == "train" else 30)]
        (folder / f"{split}.txt").write_text("".join(lines))
    return folder


@pytest.fixture(scope="session")
def run(text: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with noise, dropout and averaging, complete after two epochs."""
    out = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NOISIN_CACHE", str(cache))
        in_process("train", *settings(text), *_out(out))
    (folder,) = out.glob("ptb-small-*")
    return folder


def settings(text: Path, epochs: int = 2) -> tuple[str, ...]:
    """The arguments of ``noisin train`` that make the run."""
    noise = ("--noise.gamma", "0.5", "--model.dropout.output", "0.1")
    limits = ("--train.epochs", str(epochs), "--train.save_steps", "9")
    return "ptb-small", "--data.name", str(text), *SMALL, *noise, *limits


def _out(folder: Path) -> tuple[str, str]:
    return "--out", str(folder)
