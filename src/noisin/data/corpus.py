"""A corpus: the vocabulary and the ids of three splits."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from noisin._util import arguments
from noisin.data import cache
from noisin.data.cache import Ids
from noisin.data.text import TextStream
from noisin.data.tokens import Tokenization
from noisin.data.vocab import EOS, UNK, Vocabulary
from noisin.errors import InvalidData, InvalidValue

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

    def beginning(self, fraction: float) -> Corpus:
        """The same corpus with less training text: the first words of train.

        Vocabulary, valid and test stay as they are, so that scores can be compared.

        >>> from noisin import data
        >>> text = data.load("manual")
        >>> round(len(text.beginning(0.25).train) / len(text.train), 3)
        0.25
        """
        if arguments.finite("Corpus: fraction", fraction, above=0) > 1:
            raise InvalidValue(f"Corpus: fraction must be at most 1, got {fraction!r:.60}.")
        return replace(self, train=self.train[: math.ceil(fraction * len(self.train))])

    def __repr__(self) -> str:
        sizes = " / ".join(f"{len(getattr(self, split)):,}" for split in SPLITS)
        return f"Corpus({self.name!r}, {sizes} tokens, {len(self.vocab):,} words)"


class _Growing(dict[str, int]):
    """Assigns the next id to each new word."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


class _Limited(dict[str, int]):
    """Has one id for all other words."""

    def __missing__(self, _: str) -> int:
        return self[UNK]


def read(
    name: str,
    texts: Mapping[str, TextStream],
    source: str,
    tokenization: Tokenization = Tokenization(),  # noqa: B008 - immutable
) -> Corpus:
    """The corpus of three texts: by default ``line.split() + ["<eos>"]`` for every line.

    Ids are numbered by first occurrence in train, valid and test. They are built once and then read
    from the cache, by the hash of the texts.
    """
    ordered = [texts[split] for split in SPLITS]
    hashes = [text.sha256() for text in ordered]
    sha256 = digest(hashes)

    def write(writer: cache.Writer) -> None:
        ids = _limited(ordered[0], tokenization) if tokenization.limits_words else _Growing()
        lengths = [_encode(text, ids, writer, tokenization) for text in ordered]
        if [text.sha256() for text in ordered] != hashes:
            raise InvalidData(f"{source}: changed while it was being read. Try again.")
        writer.close(lengths, list(ids))

    key = digest([sha256, tokenization.key]) if tokenization.key else sha256
    entry = cache.get(key) or cache.put(key, write)
    return Corpus(name, entry.vocab, *entry.ids, sha256, source)


def digest(hashes: Iterable[str]) -> str:
    """The sha256 of a corpus, from those of its train, valid and test text."""
    return hashlib.sha256("".join(f"{h}\n" for h in hashes).encode()).hexdigest()


def _limited(train: TextStream, tokenization: Tokenization) -> _Limited:
    counts = Counter(token for lines in train.lines() for token in tokenization.tokenize(lines))
    return _Limited((word, i) for i, word in enumerate(tokenization.vocabulary(counts)))


def _encode(
    text: TextStream, ids: _Growing | _Limited, writer: cache.Writer, tokenization: Tokenization
) -> int:
    length = ends = 0
    for lines in text.lines():
        found = tokenization.tokenize(lines)
        writer.put(np.fromiter(map(ids.__getitem__, found), np.int32, len(found)))
        length += len(found)
        ends += found.count(EOS)
    if length == ends:
        raise InvalidData(f"{text.name}: is empty. Expected text, with words separated by spaces.")
    return length
