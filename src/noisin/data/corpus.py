"""A corpus: the vocabulary and the ids of three splits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from noisin.data import cache
from noisin.data.cache import Ids
from noisin.data.text import TOKENIZERS, TextStream, Tokens
from noisin.data.vocab import EOS, Vocabulary
from noisin.errors import InvalidData

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False)
class Corpus:
    """Text as ids. The arrays are read-only and mapped into memory, so they may be larger than it.

    ``sha256`` is the hash of the text of the three splits and does not depend on where its files
    are; ``source`` is that place.
    """

    name: str
    vocab: Vocabulary
    train: Ids
    valid: Ids
    test: Ids
    sha256: str
    source: str

    def __repr__(self) -> str:
        sizes = " / ".join(f"{len(getattr(self, split)):,}" for split in SPLITS)
        return f"Corpus({self.name!r}, {sizes} tokens, {len(self.vocab):,} words)"


class _Growing(dict[str, int]):
    """Assigns the next id to each new word."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


def read(
    name: str, texts: Mapping[str, TextStream], source: str, tokens: Tokens = "words"
) -> Corpus:
    """The corpus of three texts: ``line.split() + ["<eos>"]`` for every line, blank ones too.

    With ``tokens = "characters"`` every character is a token; the end of a line is ``"<eos>"``.
    Ids are numbered by first occurrence in train, valid and test. They are built once and then read
    from the cache, by the hash of the texts.
    """
    ordered = [texts[split] for split in SPLITS]
    hashes = [text.sha256() for text in ordered]
    sha256 = digest(hashes)

    def write(writer: cache.Writer) -> None:
        ids = _Growing()
        lengths = [_encode(text, ids, writer, TOKENIZERS[tokens]) for text in ordered]
        if [text.sha256() for text in ordered] != hashes:
            raise InvalidData(f"{source}: changed while it was being read. Try again.")
        writer.close(lengths, list(ids))

    key = sha256 if tokens == "words" else digest([sha256, tokens])
    entry = cache.get(key) or cache.put(key, write)
    return Corpus(name, entry.vocab, *entry.ids, sha256, source)


def digest(hashes: Iterable[str]) -> str:
    """The sha256 of a corpus, from those of its train, valid and test text."""
    return hashlib.sha256("".join(f"{h}\n" for h in hashes).encode()).hexdigest()


def _encode(
    text: TextStream, ids: _Growing, writer: cache.Writer, tokenize: Callable[[str], list[str]]
) -> int:
    length = ends = 0
    for lines in text.lines():
        found = tokenize(lines)
        writer.put(np.fromiter(map(ids.__getitem__, found), np.int32, len(found)))
        length += len(found)
        ends += found.count(EOS)
    if length == ends:
        raise InvalidData(f"{text.name}: is empty. Expected text, with words separated by spaces.")
    return length
