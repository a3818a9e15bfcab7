"""How text becomes tokens, and which of them are words of the vocabulary."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from noisin._util import arguments
from noisin.data.vocab import EOS, UNK
from noisin.errors import InvalidValue

Tokens = Literal["space", "words", "characters"]
SplitBy = Literal["position", "blocks"]

_SPELT = {"\n": EOS, " ": "<space>"}
# Words with inner apostrophes and hyphens, the unknown word, the ends of lines, and single marks.
_WORD = re.compile(rf"{UNK}|\w+(?:['’-]\w+)*|\n|[^\w\s]")


def by_space(lines: str) -> list[str]:
    r"""``line.split() + ["<eos>"]`` for every line, blank ones too.

    >>> by_space("the cat\n\nsat\n")
    ['the', 'cat', '<eos>', '<eos>', 'sat', '<eos>']
    """
    return lines.replace("\n", f" {EOS} ").split()


def by_word(lines: str) -> list[str]:
    r"""Words and marks: punctuation is separated from the words that it touches.

    >>> by_word('He said: "don\'t", <unk>.\n')
    ['He', 'said', ':', '"', "don't", '"', ',', '<unk>', '.', '<eos>']
    """
    return [EOS if token == "\n" else token for token in _WORD.findall(lines)]


def characters(lines: str) -> list[str]:
    r"""The characters of lines; white space is spelt, because a word of a vocabulary has none.

    >>> characters("a cat\n\t!\n")
    ['a', '<space>', 'c', 'a', 't', '<eos>', '<U+0009>', '!', '<eos>']
    """
    return [_SPELT.get(c, f"<U+{ord(c):04X}>") if c.isspace() else c for c in lines]


def joined(tokens: Iterable[str]) -> str:
    r"""The text of :func:`characters`.

    >>> joined(["a", "<space>", "b", "<U+0009>", "<eos>"])
    'a b\t\n'
    """
    spelt = {name: c for c, name in _SPELT.items()}
    coded = re.compile(r"<U\+([0-9A-F]{4,6})>")
    return "".join(
        chr(int(code[1], 16)) if (code := coded.fullmatch(token)) else spelt.get(token, token)
        for token in tokens
    )


TOKENIZERS: Mapping[Tokens, Callable[[str], list[str]]] = {
    "space": by_space,
    "words": by_word,
    "characters": characters,
}


@dataclass(frozen=True)
class Tokenization:
    r"""How a text is read.

    Args:
        tokens: ``"space"`` (what white space separates), ``"words"`` (words, and each mark of
            punctuation by itself) or ``"characters"``.
        lower: whether to convert the text to lower case.
        min_count: words that occur less often in train are ``"<unk>"``.
        max_words: the most words of the vocabulary, ``"<eos>"`` and ``"<unk>"`` included: those
            that are most frequent in train.
        split: how one file becomes three splits, see :func:`noisin.data.text.split_file`.

    >>> Tokenization("words", lower=True).tokenize("The end.\n")
    ['the', 'end', '.', '<eos>']
    """

    tokens: Tokens = "space"
    lower: bool = False
    min_count: int = 1
    max_words: int | None = None
    split: SplitBy = "position"

    def __post_init__(self) -> None:
        for name, choices in (("tokens", Tokens), ("split", SplitBy)):
            if (got := getattr(self, name)) not in get_args(choices):
                known = " or ".join(get_args(choices))
                raise InvalidValue(f"load: {name} must be {known}, got {got!r:.60}.")
        arguments.instance("load: lower", self.lower, bool, "Pass True or False.")
        arguments.whole("load: min_count", self.min_count)
        if self.max_words is not None:
            arguments.whole("load: max_words", self.max_words, 3)

    def tokenize(self, lines: str) -> list[str]:
        """The tokens of whole lines."""
        return TOKENIZERS[self.tokens](lines.lower() if self.lower else lines)

    @property
    def limits_words(self) -> bool:
        """Whether some words are replaced by ``"<unk>"``."""
        return self.min_count > 1 or self.max_words is not None

    @property
    def key(self) -> str:
        """Tells apart the ids of one text that was read in two ways; empty by default.

        How a file was split is not part of it: other splits are another text.
        """
        if self == Tokenization(split=self.split):
            return ""
        return f"{self.tokens} {self.lower} {self.min_count} {self.max_words}"

    def vocabulary(self, counts: Mapping[str, int]) -> list[str]:
        """The words to keep, in the order of the counts, which are those of train.

        >>> Tokenization(min_count=2).vocabulary({"a": 2, "b": 1, "<eos>": 1})
        ['a', '<eos>', '<unk>']
        >>> Tokenization(max_words=3).vocabulary({"a": 2, "b": 1, "<eos>": 1, "c": 3})
        ['<eos>', 'c', '<unk>']
        """
        frequent = [w for w, n in counts.items() if n >= self.min_count and w not in (EOS, UNK)]
        if self.max_words is not None:
            frequent.sort(key=lambda word: -counts[word])  # stable: the first of equals stays
            del frequent[self.max_words - 2 :]
        kept = {*frequent, EOS, UNK}
        return [*(w for w in counts if w in kept), *(w for w in (EOS, UNK) if w not in counts)]
