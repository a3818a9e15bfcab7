"""Text: predict the next word of a stream, read in columns with the state carried along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from noisin import data
from noisin._util import arguments
from noisin.data import Batch, Corpus, Windows
from noisin.tasks.base import Observation, Split
from noisin.tasks.unit import BITS_PER_CHARACTER, PERPLEXITY

if TYPE_CHECKING:
    from noisin.training.config import RunConfig

EVAL_ROWS = 70  # rows to score at a time; the score does not depend on it


class Text:
    """The words of a corpus, in windows of truncated backpropagation.

    Args:
        corpus: the text, such as ``noisin.data.load("ptb")``.
        batch_size: columns of the training text, read side by side.
        bptt: rows of a window.
        variable_length: whether windows have random lengths around ``bptt``.
        partial_shuffle: whether each column is rotated at a random row in every epoch.
        eval_batch_size: columns in evaluation.
        clean_tokens: how much of the training text to score without noise after every epoch.
        seed: the seed of the random lengths and rotations.
    """

    unit = PERPLEXITY

    def __init__(
        self,
        corpus: Corpus,
        *,
        batch_size: int = 80,
        bptt: int = 35,
        variable_length: bool = False,
        partial_shuffle: bool = False,
        eval_batch_size: int = 10,
        clean_tokens: int = 100_000,
        seed: int = 1111,
    ) -> None:
        arguments.instance("Text: corpus", corpus, Corpus, "Load one: noisin.data.load('ptb').")
        arguments.whole("Text: clean_tokens", clean_tokens, 0)
        self.corpus = corpus
        self.identity = {
            "batch_size": batch_size,
            "bptt": bptt,
            "variable_length": variable_length,
            "eval_batch_size": eval_batch_size,
            "clean_tokens": clean_tokens,
            "seed": seed,
            **({"partial_shuffle": True} if partial_shuffle else {}),
        }
        self.name = corpus.name
        self.observation = Observation("categorical", len(corpus.vocab))
        order = {"variable": variable_length, "partial_shuffle": partial_shuffle}
        self._train = Windows(corpus.train, batch_size, bptt, seed=seed, **order)
        texts: dict[Split, Any] = {"valid": corpus.valid, "test": corpus.test}
        if clean_tokens:
            texts["train_clean"] = corpus.train[: clean_tokens + 1]
        self._scored = {
            split: Windows(ids, eval_batch_size, EVAL_ROWS) for split, ids in texts.items()
        }
        self.splits: tuple[Split, ...] = ("train", *self._scored)
        self.extent = self._train.rows

    @classmethod
    def from_config(cls, config: RunConfig, corpus: Corpus | None = None) -> Self:
        """The task of a config; loads the corpus unless it is given."""
        train, place = config.train, config.data
        whole = corpus or data.load(place.name, place.folder, **asdict(place.tokenization))
        return cls(
            whole.beginning(place.fraction),
            batch_size=train.batch_size,
            bptt=train.bptt,
            variable_length=train.variable_length,
            partial_shuffle=train.partial_shuffle,
            eval_batch_size=train.eval_batch_size,
            clean_tokens=train.clean_tokens,
            seed=config.seed,
        )

    def batches(self, split: Split, *, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """The windows of an epoch, or all of a text to score."""
        return self._train.epoch(epoch, start) if split == "train" else self._scored[split].epoch(0)

    @property
    def facts(self) -> Mapping[str, Any]:
        """The identity of the text and of its vocabulary."""
        text = self.corpus
        sizes = [len(text.train), len(text.valid), len(text.test)]
        return {
            "data": {"name": text.name, "sha256": text.sha256, "tokens": sizes},
            "vocabulary": {"sha256": text.vocab.sha256, "words": len(text.vocab)},
        }

    @property
    def files(self) -> Mapping[str, str]:
        """Files that a trained model needs in addition to its weights: the vocabulary."""
        return {"vocabulary.json": self.corpus.vocab.to_json()}


class Characters(Text):
    """The characters of a text, white space included; the score is in bits per character.

    The arguments are those of :class:`Text`, of ``noisin.data.load(name, tokens="characters")``.
    """

    unit = BITS_PER_CHARACTER
