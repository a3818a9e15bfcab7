"""How text is read: tokens, lower case, rare words, splits by blocks, and advice about a text."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisin import data
from noisin.data.text import GROUPS, split_file
from noisin.data.tokens import Tokenization, by_word
from noisin.errors import InvalidType, InvalidValue
from noisin.tasks import Text
from noisin.training.config import RunConfig, TrainConfig
from tests.cli.run import in_process

TEXT = {
    "train": "The cat, the dog.\nThe END\n",
    "valid": "the bird.\n",
    "test": "A cat\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NOISIN_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "text"
    place.mkdir()
    for split, text in TEXT.items():
        (place / f"{split}.txt").write_text(text)
    return place


def test_words_and_marks(folder: Path) -> None:
    corpus = data.load(folder, tokens="words", lower=True)
    words = corpus.vocab.decode(corpus.train)
    assert words == ["the", "cat", ",", "the", "dog", ".", "<eos>", "the", "end", "<eos>"]
    assert data.load(folder).vocab.words[:2] == ("The", "cat,"), "the cache keeps both apart"


@settings(derandomize=True, deadline=None, max_examples=60, database=None)
@given(st.text(st.characters(exclude_characters="\x00\r", exclude_categories=["Cs"])))
def test_no_character_is_lost_but_white_space(text: str) -> None:
    tokens = by_word(text)
    assert all(token.split() == [token] for token in tokens)
    spelt = "".join("\n" if token == "<eos>" else token for token in tokens)
    assert "".join(spelt.split()) == "".join(text.split())


def test_rare_words_are_counted_on_train_alone(folder: Path) -> None:
    corpus = data.load(folder, tokens="words", lower=True, min_count=2)
    assert corpus.vocab.words == ("the", "<eos>", "<unk>")
    assert corpus.vocab.decode(corpus.valid) == ["the", "<unk>", "<unk>", "<eos>"]
    plain = data.load(folder, tokens="words", lower=True)
    assert len(plain.train) == len(corpus.train), "tokens are replaced, not left out"
    assert "bird" in plain.vocab, "by default all words of all splits are known"


@settings(derandomize=True, deadline=None, max_examples=60, database=None)
@given(
    st.dictionaries(st.text("abcde", min_size=1, max_size=2), st.integers(1, 9), max_size=12),
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(3, 8)),
)
def test_the_most_frequent_words_stay(
    counts: dict[str, int], min_count: int, most: int | None
) -> None:
    kept = Tokenization(min_count=min_count, max_words=most).vocabulary(counts | {"<eos>": 1})
    words = [word for word in kept if word not in ("<eos>", "<unk>")]
    assert {"<eos>", "<unk>"} <= {*kept}
    assert len({*kept}) == len(kept) <= (most or len(kept))
    assert words == [word for word in counts if word in words], "in the order of the text"
    assert all(counts[word] >= min_count for word in words)
    dropped = [n for word, n in counts.items() if word not in words and n >= min_count]
    assert not dropped or (len(kept) == most and max(dropped) <= min(counts[w] for w in words))


def test_blocks_make_the_splits_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISIN_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "diary.txt"
    lines = [f"year y{n // 100} day {n % 100}\n" for n in range(3000)]
    path.write_text("".join(lines))
    parts = {split: stream.blocks() for split, stream in split_file(path, "blocks").items()}
    texts = {split: b"".join(blocks).decode() for split, blocks in parts.items()}
    assert Counter("".join(texts.values()).splitlines(True)) == Counter(lines), "each line once"
    years = {
        split: {line.split()[1] for line in text.splitlines()} for split, text in texts.items()
    }
    assert len(years["valid"]) >= GROUPS, "of all the file"
    assert len(years["test"]) >= GROUPS
    by_position = data.describe(data.load(path))
    by_blocks = data.describe(data.load(path, split="blocks"))
    assert by_position.unseen["test"] > 0.15, "later years, which train does not have"
    assert by_blocks.unseen["test"] == 0
    assert by_position.sha256 != by_blocks.sha256, "another split is another text"


@pytest.mark.parametrize("fraction", [1.0, 0.5, 0.21])
def test_less_of_train_leaves_everything_else(folder: Path, fraction: float) -> None:
    whole = data.load(folder)
    config = RunConfig.parse({"data": {"name": str(folder), "fraction": fraction}}, "test")
    config = config.model_copy(update={"train": TrainConfig(batch_size=1, eval_batch_size=1)})
    part = Text.from_config(config).corpus
    assert len(part.train) == math.ceil(fraction * len(whole.train))
    assert list(part.train) == list(whole.train[: len(part.train)])
    for name in ("vocab", "sha256"):
        assert getattr(part, name) == getattr(whole, name)
    for name in ("valid", "test"):
        assert list(getattr(part, name)) == list(getattr(whole, name))


@pytest.mark.parametrize("fraction", [0, -0.5, 1.01, math.nan, True, "all"])
def test_a_wrong_fraction(folder: Path, fraction: Any) -> None:
    with pytest.raises(InvalidValue, match="Corpus: fraction must be"):
        data.load(folder).beginning(fraction)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokens": "bytes"}, "tokens must be space or words or characters, got 'bytes'"),
        ({"split": "random"}, "split must be position or blocks, got 'random'"),
        ({"min_count": 0}, "min_count"),
        ({"max_words": 2}, "max_words"),
        ({"lower": "yes"}, "lower"),
        ({"split": "blocks"}, "has three splits already"),
    ],
)
def test_wrong_arguments(folder: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidValue, InvalidType), match=message):
        data.load(folder, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "jsb", "lower": True}, "data.lower must be left out for music: it is for text"),
        ({"name": "bikes", "tokens": "characters"}, "data.tokens must be left out for series"),
        ({"task": "characters", "tokens": "words"}, "data.tokens must be characters for the task"),
        ({"task": "text", "tokens": "characters"}, "data.tokens must be space or words for the"),
        ({"min_count": 0}, "data.min_count must be 1 or more, got 0"),
        ({"fraction": 0}, "data.fraction must be more than 0.0, got 0"),
        ({"fraction": 1.5}, "data.fraction must be 1.0 or less, got 1.5"),
        ({"name": "jsb", "fraction": 0.5}, "data.fraction must be left out for music"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        RunConfig.parse({"data": settings}, "test")


def test_settings_that_are_off_do_not_change_the_identity_of_a_run() -> None:
    plain = RunConfig.parse({}, "test")
    off: dict[str, Any] = {"tokens": None, "lower": False, "min_count": 1, "max_words": None}
    off |= {"split": "position", "fraction": 1.0}
    assert RunConfig.parse({"data": off}, "test").hash() == plain.hash()
    assert RunConfig.parse({"data": {"fraction": 0.5}}, "test").hash() != plain.hash()
    assert RunConfig.parse({"data": {"lower": True}}, "test").hash() != plain.hash()


def test_the_command_advises(folder: Path, capsys: Any) -> None:
    (folder / "train.txt").write_text("".join(f"word{n} end.\n" for n in range(50)))
    assert in_process("data", str(folder)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "different words for 150 tokens of train, 50 of which occur once" in shown
    assert "words that do not occur in train" in shown
    flags = ("--tokens", "words", "--lower", "--min-count", "2")
    assert in_process("data", str(folder), *flags, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["words"], found["unseen"]) == (4, {"valid": 0.0, "test": 0.0})


@pytest.mark.parametrize("name", ["manual"])
def test_nothing_is_wrong_with_well_known_texts(name: str, capsys: Any) -> None:
    assert in_process("data", name, "--json") == 0
    assert json.loads(capsys.readouterr().out)["advice"] == []


def test_a_model_of_lower_case_words_reads_a_prompt_so(
    folder: Path, tmp_path: Path, capsys: Any
) -> None:
    for split in TEXT:
        (folder / f"{split}.txt").write_text(TEXT["train"] * 20)
    small = ("--model.hidden_size", "8", "--train.batch_size", "4", "--train.epochs", "1")
    how = ("--data.tokens", "words", "--data.lower", "true", "--threads", "1")
    command = ("train", "manual", "--data.name", str(folder), *how, *small)
    assert in_process(*command, "--out", str(tmp_path / "runs")) == 0
    (run,) = (tmp_path / "runs").glob("manual-*")
    capsys.readouterr()
    assert in_process("generate", str(run), "--prompt", "The END.", "--length", "3") == 0
    assert "END" in capsys.readouterr().out
    assert in_process("generate", str(run), "--prompt", "The bird") == 2, "there is no <unk>"
