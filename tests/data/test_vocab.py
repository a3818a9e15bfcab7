from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisin.data import Vocabulary
from noisin.errors import InvalidType, InvalidValue

WORDS = st.text(min_size=1, max_size=5).filter(lambda w: w.split() == [w])
VOCAB = Vocabulary(("a", "<eos>", "<unk>", "b"))


@settings(deadline=None, derandomize=True)
@given(st.lists(WORDS, unique=True))
def test_json_and_ids_lead_back(words: list[str]) -> None:
    vocab = Vocabulary((*(w for w in words if w != "<eos>"), "<eos>"))
    assert Vocabulary.from_json(vocab.to_json()) == vocab
    assert vocab.decode(vocab.encode(vocab.words)) == list(vocab.words)
    np.testing.assert_array_equal(vocab.encode(vocab.words), np.arange(len(vocab)))


def test_facts_of_a_vocabulary() -> None:
    assert len(VOCAB) == 4
    assert VOCAB.id("b") == 3
    assert VOCAB.id("never seen") == VOCAB.id("<unk>") == 2
    assert "b" in VOCAB
    assert "never seen" not in VOCAB
    assert VOCAB.encode(["b", "x"]).dtype == np.int32
    assert repr(VOCAB) == "Vocabulary(4 words)"


def test_the_hash_tells_vocabularies_apart() -> None:
    assert VOCAB.sha256 == Vocabulary(VOCAB.words).sha256
    swapped = Vocabulary(("b", "<eos>", "<unk>", "a"))
    assert VOCAB.sha256 != swapped.sha256
    joined, apart = Vocabulary(("ab", "<eos>")), Vocabulary(("a", "b", "<eos>"))
    assert joined.sha256 != apart.sha256


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a", "b"), "'<eos>' must be a word"),
        (("a", "a", "<eos>"), "got 'a' twice"),
        (("a b", "<eos>"), "without white space, got 'a b'"),
        (("", "<eos>"), "without white space, got ''"),
        ((3, "<eos>"), "got 3"),
    ],
)
def test_bad_words(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        Vocabulary(words)


@pytest.mark.parametrize("text", ["", "{", '{"words": []}', "3", "[[1]]", '["a"]', "[null]"])
def test_bad_json(text: str) -> None:
    with pytest.raises(InvalidValue, match="Vocabulary: "):
        Vocabulary.from_json(text)


def test_bad_use() -> None:
    with pytest.raises(InvalidValue, match="'c' is not one of the 2 words"):
        Vocabulary(("a", "<eos>")).id("c")
    with pytest.raises(InvalidType, match=r"s.split\(\)"):
        VOCAB.encode("a b")
    for i in (-1, 4):
        with pytest.raises(InvalidValue, match=f"0 to 3, got {i}"):
            VOCAB.decode([0, i])
