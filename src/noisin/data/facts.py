"""Facts about a corpus: sizes, unknown words, and how much of valid and test is also in train."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisin._util import arguments
from noisin.data.cache import Ids, require_ids
from noisin.data.corpus import SPLITS, Corpus
from noisin.data.tokens import Tokenization
from noisin.data.vocab import UNK

GRAM = 12
# When to advise: words per token of train, the share of unseen tokens, the difference of entropies.
MANY_WORDS, MANY_UNSEEN, UNLIKE = 0.05, 0.01, 0.05
_CHUNK = 2**20


@dataclass(frozen=True)
class Facts:
    """Facts about a corpus. Shares are shares of the tokens, or n-grams, of a split.

    Attributes:
        words: the size of the vocabulary.
        once: the number of words that occur once in train.
        unknown: the share of ``"<unk>"``.
        unseen: the share of words that do not occur in train, so that nothing is learnt about them.
        unigram: nats per token of the frequencies of train, each word counted once more.
        overlap: the share of 12-grams that occur in train.
    """

    name: str
    source: str
    words: int
    once: int
    tokens: dict[str, int]
    unknown: dict[str, float]
    unseen: dict[str, float]
    unigram: dict[str, float]
    overlap: dict[str, float]
    sha256: str
    vocabulary_sha256: str


def describe(corpus: Corpus) -> Facts:
    """Count tokens, words, unknown words and repeated 12-grams."""
    arguments.instance("describe: corpus", corpus, Corpus, "Pass what data.load returns.")
    splits = {split: getattr(corpus, split) for split in SPLITS}
    counts = {split: _counts(ids, len(corpus.vocab)) for split, ids in splits.items()}
    seen = counts["train"]
    likely = np.log((seen + 1) / (seen.sum() + len(seen)))
    return Facts(
        name=corpus.name,
        source=corpus.source,
        words=len(corpus.vocab),
        once=int((seen == 1).sum()),
        tokens={split: len(ids) for split, ids in splits.items()},
        unknown={split: _unknown(corpus, n) for split, n in counts.items()},
        unseen={s: float(n[seen == 0].sum() / n.sum()) for s, n in counts.items() if s != "train"},
        unigram={split: float(-(n @ likely) / n.sum()) for split, n in counts.items()},
        overlap={split: overlap(corpus.train, splits[split]) for split in ("valid", "test")},
        sha256=corpus.sha256,
        vocabulary_sha256=corpus.vocab.sha256,
    )


def advice(facts: Facts, tokenization: Tokenization) -> list[str]:
    """What to consider before training on a text that was read in this way."""
    found = []
    tokens = facts.tokens["train"]
    if facts.words > MANY_WORDS * tokens and not tokenization.limits_words:
        found.append(
            f"{facts.words:,} different words for {tokens:,} tokens of train, {facts.once:,} of "
            f"which occur once: a model learns little about most of them. Consider "
            f'data.tokens = "words", which separates punctuation, data.lower and data.min_count = '
            f"2, or characters."
        )
    if (unseen := max(facts.unseen.values())) > MANY_UNSEEN:
        found.append(
            f"{100 * unseen:.1f} % of the tokens of valid or test are words that do not occur in "
            f'train. With data.min_count = 2 they are "<unk>", which is learnt.'
        )
    valid, test = facts.unigram["valid"], facts.unigram["test"]
    if abs(valid - test) > UNLIKE * min(valid, test):
        found.append(
            f"test is unlike valid: by the frequencies of words in train, a token has {test:.2f} "
            f"nats in test and {valid:.2f} in valid. What is best on valid may not be on test."
        )
        if tokenization.split == "position":
            found[-1] += ' For one file, data.split = "blocks" takes all three from ten places.'
    return found


def _counts(ids: Ids, words: int) -> NDArray[np.int64]:
    """How often each word occurs."""
    starts = range(0, len(ids), _CHUNK)
    total = np.zeros(words, np.int64)
    for start in starts:
        total += np.bincount(ids[start : start + _CHUNK], minlength=words)
    return total


def _unknown(corpus: Corpus, counts: NDArray[np.int64]) -> float:
    if UNK not in corpus.vocab:
        return 0.0
    return float(counts[corpus.vocab.id(UNK)] / counts.sum())


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
