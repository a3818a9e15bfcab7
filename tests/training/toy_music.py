"""A few short pieces of music, of unequal lengths: batches that are padded and differ in size."""

from __future__ import annotations

from typing import Self

import numpy as np

from noisin.data.music import NOTES, Piece, Pieces
from noisin.tasks import Music
from noisin.training import RunConfig

TRAIN = {"batch_size": 4, "eval_batch_size": 3, "lr": 1.0}
SETTINGS = {
    "data": {"name": "toy", "task": "tests.training.toy_music:ToyMusic"},
    "model": {"hidden_size": 6, "tied": False, "dropout": {"output": 0.2}},
    "train": TRAIN,
}


class ToyMusic(Music):
    """Seven pieces to learn from; the last batch has three."""

    @classmethod
    def from_config(cls, config: RunConfig) -> Self:
        random = np.random.RandomState(0)

        def some(*lengths: int) -> list[Piece]:
            return [(random.random_sample((n, NOTES)) < 0.1).astype(np.uint8) for n in lengths]

        pieces = Pieces("toy", some(5, 3, 9, 1, 4, 6, 2), some(4, 7), some(3, 5), "sha")
        sizes = {"batch_size": config.train.batch_size, "seed": config.seed}
        return cls(pieces, eval_batch_size=config.train.eval_batch_size, **sizes)
