"""The built-in text: Python's own language reference, which CPython includes for ``help()``.

Repeated paragraphs are dropped, for many topics quote each other. Blocks of neighbouring paragraphs
are dealt out to train, valid and test, so that the three are alike and yet do not share sentences.
Everything is a function of the text, which is that of the Python version: no network, no file.
"""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from noisin.data.text import TextStream
from noisin.data.tokens import by_space
from noisin.data.vocab import EOS, UNK

SHARES = {"train": 0.82, "valid": 0.095, "test": 0.085}
PARAGRAPHS = 12  # of a block
RARE = 3  # a word that is less frequent in train is replaced by <unk> everywhere

Paragraph = tuple[str, ...]  # the lines, with tokens separated by spaces

_TOKEN = re.compile(r"[^\W\d_]+|\S")  # a word of letters, or any other single character
_RULE = re.compile(r"([^\w\s])\1{4,}")  # under a heading or around a table
_BLANK = re.compile(r"\n\s*\n")


def source() -> str:
    """The origin of the text."""
    return f"pydoc_data.topics of {platform.python_implementation()} {platform.python_version()}"


def texts() -> dict[str, TextStream]:
    """The splits of the language reference of this Python."""
    from pydoc_data.topics import topics  # half a megabyte: not before it is asked for

    return {
        split: TextStream(f"manual ({split})", text.encode())
        for split, text in render(topics).items()
    }


def render(topics: Mapping[str, str]) -> dict[str, str]:
    """Topics as the text of three splits: one line each, a blank line after each paragraph."""
    dealt = deal(blocks(paragraphs(topics)))
    split_words = {
        split: by_space("".join(f"{line}\n" for paragraph in parts for line in (*paragraph, "")))
        for split, parts in dealt.items()
    }
    often = {w for w, count in Counter(split_words["train"]).items() if count >= RARE}
    return {
        split: _join(w if w in often else UNK for w in all) for split, all in split_words.items()
    }


def _join(tokens: Iterable[str]) -> str:
    return " ".join(tokens).replace(f" {EOS}", "\n").replace("\n ", "\n")


def paragraphs(topics: Mapping[str, str]) -> Iterator[Paragraph]:
    """The paragraphs in the order of their topics, without repetitions."""
    seen = set()
    for _, topic in sorted(topics.items()):
        for text in _BLANK.split(topic):
            paragraph = tuple(filter(None, map(tokenize, text.splitlines())))
            key = " ".join(paragraph)  # independent of line breaks
            if key and key not in seen:
                seen.add(key)
                yield paragraph


def tokenize(line: str) -> str:
    """A line with words, digits and punctuation separated by spaces; rules shortened to four marks.

    >>> tokenize('The "for" loop calls __next__() up to 10 times.')
    'The " for " loop calls _ _ next _ _ ( ) up to 1 0 times .'
    >>> tokenize("=" * 70)
    '= = = ='
    """
    return " ".join(_TOKEN.findall(_RULE.sub(r"\1\1\1\1", line)))


def blocks(all: Iterable[Paragraph]) -> Iterator[list[Paragraph]]:
    """Neighbouring paragraphs, :data:`PARAGRAPHS` at a time."""
    listed = list(all)
    for i in range(0, len(listed), PARAGRAPHS):
        yield listed[i : i + PARAGRAPHS]


def deal(all: Iterable[Sequence[Paragraph]]) -> dict[str, list[Paragraph]]:
    """Assign each block to the split that is furthest below its share of the words."""
    dealt: dict[str, list[Paragraph]] = {split: [] for split in SHARES}
    size = dict.fromkeys(SHARES, 0)
    for block in all:
        new = sum(len(line.split()) + 1 for paragraph in block for line in (*paragraph, ""))
        total = sum(size.values()) + new
        split = max(SHARES, key=lambda s: SHARES[s] * total - size[s])
        dealt[split] += block
        size[split] += new
    return dealt
