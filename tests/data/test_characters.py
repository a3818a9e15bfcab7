"""Characters of a text: bits per character, from files to generated text."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisin import data
from noisin.data.tokens import characters, joined
from noisin.data.vocab import Vocabulary
from noisin.errors import InvalidValue
from noisin.tasks import Characters
from tests.cli.run import in_process

LINES = "ab ba\n\tb  a\n"


@settings(derandomize=True, deadline=None, max_examples=60, database=None)
@given(st.text(st.characters(exclude_characters="<\x00\r", exclude_categories=["Cs"])))
def test_the_text_comes_back_and_tokens_are_words(text: str) -> None:
    tokens = characters(text)
    assert len(tokens) == len(text)
    assert joined(tokens) == text
    Vocabulary(tuple({*tokens, "<eos>"}))  # which have no white space


@pytest.fixture
def text(tmp_path: Path) -> Path:
    folder = tmp_path / "letters"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text(LINES * 20)
    return folder


def test_a_corpus_of_characters_beside_one_of_words(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOISIN_CACHE", str(text.parent / "cache"))
    words, letters = data.load(text), data.load(text, tokens="characters")
    assert words.sha256 == letters.sha256, "the same text"
    assert words.vocab.words == ("ab", "ba", "<eos>", "b", "a")
    assert letters.vocab.words == ("a", "b", "<space>", "<eos>", "<U+0009>")
    assert joined(letters.vocab.decode(letters.train)) == LINES * 20
    assert len(data.load(text).train) == 6 * 20, "the cache keeps both apart"
    with pytest.raises(InvalidValue, match="space or words or characters, got 'bytes'"):
        data.load(text, tokens="bytes")
    assert str(Characters.unit) == "bits per character"


def test_train_evaluate_and_generate(
    text: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOISIN_CACHE", str(tmp_path / "cache"))
    small = ("--model.hidden_size", "8", "--train.batch_size", "4", "--train.epochs", "1")
    settings = ("--data.name", str(text), "--data.tokens", "characters", "--threads", "1", *small)
    assert in_process("train", "manual", *settings, "--out", str(tmp_path / "runs")) == 0
    assert "bits per character" in capsys.readouterr().out
    (run,) = (tmp_path / "runs").glob("manual-*")
    assert in_process("evaluate", str(run), "--batch-size", "1", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["count"] == 20 * len(LINES) - 1
    assert told["bits"] == pytest.approx(told["nats"] / math.log(2))
    assert in_process("generate", str(run), "--prompt", "ab b", "--length", "30") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("ab b")
    assert set(shown) <= {*LINES, *r"\t"}, "a tab is escaped on a terminal"
    assert in_process("generate", str(run), "--prompt", "xyz") == 2
    assert "'x' is not one of the 5 words" in capsys.readouterr().err
