"""The vocabulary: words and their ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisin._util import arguments
from noisin.errors import InvalidType, InvalidValue

EOS, UNK = "<eos>", "<unk>"


@dataclass(frozen=True)
class Vocabulary:
    """Words in the order of their ids. ``"<eos>"`` ends a line, ``"<unk>"`` is any other word.

    >>> vocab = Vocabulary(("the", "cat", "<eos>", "<unk>"))
    >>> vocab.encode(["the", "dog", "<eos>"])
    array([0, 3, 2], dtype=int32)
    >>> vocab.decode([0, 1, 2])
    ['the', 'cat', '<eos>']
    >>> Vocabulary.from_json(vocab.to_json()) == vocab
    True
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.words, tuple | list):
            raise InvalidType(
                f"Vocabulary: expected a tuple of words, got {type(self.words).__name__}. Pass "
                f"tuple(words)."
            )
        wrong = [w for w in self.words if not isinstance(w, str) or w.split() != [w]]
        if wrong:
            raise InvalidValue(
                f"Vocabulary: a word is a string without white space, got {wrong[0]!r}."
            )
        if len(self._ids) != len(self.words):
            twice = next(w for i, w in enumerate(self.words) if self._ids[w] != i)
            raise InvalidValue(f"Vocabulary: words must differ, got {twice!r} twice.")
        if EOS not in self._ids:
            raise InvalidValue(f"Vocabulary: {EOS!r} must be a word, because it ends every line.")

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and word in self._ids

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} words)"

    def id(self, word: str) -> int:
        """The id of a word, or that of ``"<unk>"`` for an unknown word."""
        if not isinstance(word, str):
            raise InvalidType(f"Vocabulary: a word is a string, got {word!r:.60}.")
        found = self._ids.get(word, self._ids.get(UNK))
        if found is None:
            raise InvalidValue(
                f"Vocabulary: {word!r} is not one of the {len(self)} words, and there is no "
                f"{UNK!r} to replace it."
            )
        return found

    def encode(self, words: Iterable[str]) -> NDArray[np.int32]:
        """The ids of words."""
        arguments.items("Vocabulary: what is encoded", words, "words, such as s.split(),")
        return np.fromiter(map(self.id, words), np.int32)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words of ids."""
        arguments.items("Vocabulary: what is decoded", ids, "ids")
        numbers = list(ids.tolist() if hasattr(ids, "tolist") else ids)
        for i in numbers:
            whole = isinstance(i, Integral) and not isinstance(i, bool)
            if not whole or not 0 <= int(i) < len(self):
                raise InvalidValue(
                    f"Vocabulary: ids are whole numbers from 0 to {len(self) - 1}, got {i!r:.60}."
                )
        return [self.words[int(i)] for i in numbers]

    def to_json(self) -> str:
        """The words as a JSON list."""
        return json.dumps(self.words, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Vocabulary:
        """The vocabulary that :meth:`to_json` wrote."""
        if not isinstance(text, str | bytes):
            raise InvalidType(
                f"Vocabulary: expected a JSON list of words as text, got {type(text).__name__}."
            )
        try:
            words: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidValue(f"Vocabulary: expected a JSON list of words: {error}.") from None
        if not isinstance(words, list):
            raise InvalidValue(
                f"Vocabulary: expected a JSON list of words, got {type(words).__name__}."
            )
        return cls(tuple(words))

    @cached_property
    def sha256(self) -> str:
        """The hash of :meth:`to_json`, by which a run identifies its vocabulary."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()
