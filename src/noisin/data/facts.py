"""Facts about a corpus: sizes, unknown words, and how much of valid and test is also in train."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisin._util import arguments
from noisin.data.cache import Ids, require_ids
from noisin.data.corpus import SPLITS, Corpus
from noisin.data.vocab import UNK

GRAM = 12
_CHUNK = 2**20


@dataclass(frozen=True)
class Facts:
    """Facts about a corpus. Shares are shares of the tokens, or n-grams, of a split."""

    name: str
    source: str
    words: int
    tokens: dict[str, int]
    unknown: dict[str, float]
    overlap: dict[str, float]
    sha256: str
    vocabulary_sha256: str


def describe(corpus: Corpus) -> Facts:
    """Count tokens, words, unknown words and repeated 12-grams."""
    arguments.instance("describe: corpus", corpus, Corpus, "Pass what data.load returns.")
    splits = {split: getattr(corpus, split) for split in SPLITS}
    return Facts(
        name=corpus.name,
        source=corpus.source,
        words=len(corpus.vocab),
        tokens={split: len(ids) for split, ids in splits.items()},
        unknown={split: _unknown(corpus, ids) for split, ids in splits.items()},
        overlap={split: overlap(corpus.train, splits[split]) for split in ("valid", "test")},
        sha256=corpus.sha256,
        vocabulary_sha256=corpus.vocab.sha256,
    )


def _unknown(corpus: Corpus, ids: Ids) -> float:
    if UNK not in corpus.vocab:
        return 0.0
    unk = corpus.vocab.id(UNK)
    starts = range(0, len(ids), _CHUNK)
    return sum(int((ids[i : i + _CHUNK] == unk).sum()) for i in starts) / len(ids)


def overlap(train: Ids, other: Ids, n: int = GRAM) -> float:
    """The share of the n-grams of ``other`` that also occur in ``train``.

    N-grams are compared by a 64-bit hash. Train is streamed, so it may be larger than memory.

    >>> overlap(np.array([1, 2, 3, 4, 1]), np.array([2, 3, 4, 5]), n=2)
    0.6666666666666666
    """
    require_ids("overlap", train)
    require_ids("overlap", other)
    arguments.whole("overlap: n", n)
    if n > len(other):
        return 0.0
    grams, count = np.unique(_hashes(other, n), return_counts=True)
    if not len(grams):
        return 0.0
    seen = np.zeros(len(grams), dtype=bool)
    for start in range(0, len(train), _CHUNK):
        found = _hashes(train[start : start + _CHUNK + n - 1], n)
        place = np.searchsorted(grams, found).clip(max=len(grams) - 1)
        seen[place[grams[place] == found]] = True
    return float(count[seen].sum() / count.sum())


def _hashes(ids: Ids, n: int) -> NDArray[np.uint64]:
    """A hash of each n-gram: its inner product, modulo 2**64, with fixed random odd numbers."""
    factors = np.random.default_rng(0).integers(0, 2**64, n, np.uint64, endpoint=False) | np.uint64(
        1
    )
    length = max(len(ids) - n + 1, 0)
    total = np.zeros(length, np.uint64)
    for i, factor in enumerate(factors):
        total += (ids[i : i + length].astype(np.uint64) + np.uint64(1)) * factor
    return total
