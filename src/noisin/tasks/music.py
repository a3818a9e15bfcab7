"""Polyphonic music: predict the notes of the next frame, whole pieces at a time.

The score is ``-log p`` of a frame, summed over its 88 notes, averaged over all frames of all
pieces. Every frame is scored: the first one is predicted from a frame of silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
import torch

from noisin.data import Batch, music
from noisin.data.music import NOTES, Piece, Pieces
from noisin.tasks.base import Observation, Split
from noisin.tasks.unit import NATS_PER_FRAME

if TYPE_CHECKING:
    from noisin.training.config import RunConfig


class Music:
    """The pieces of a data set: padded batches in random order, each from a zero state.

    Args:
        pieces: the data, such as ``noisin.data.music.load("jsb")``.
        batch_size, eval_batch_size: pieces in a batch.
        seed: the seed of the order of the pieces, which depends only on seed and epoch.
    """

    unit = NATS_PER_FRAME
    splits: tuple[Split, ...] = ("train", "valid", "test", "train_clean")

    def __init__(
        self, pieces: Pieces, *, batch_size: int = 8, eval_batch_size: int = 10, seed: int = 1111
    ) -> None:
        self.pieces, self.name, self.sha256 = pieces, pieces.name, pieces.sha256
        self.batch_size, self.eval_batch_size, self.seed = batch_size, eval_batch_size, seed
        self.identity = {
            name: getattr(self, name) for name in ("batch_size", "eval_batch_size", "seed")
        }
        self.extent = len(pieces.train)
        sounding = np.concatenate(pieces.train).sum(0)
        p = (sounding + 0.5) / (sum(map(len, pieces.train)) + 1)  # never 0
        self.observation = Observation("bernoulli", NOTES, bias=np.log(p / (1 - p)).tolist())

    @classmethod
    def from_config(cls, config: RunConfig) -> Self:
        """The task of a config."""
        sizes = {"batch_size": config.train.batch_size, "seed": config.seed}
        pieces = music.load(config.data.name, config.data.folder)
        return cls(pieces, eval_batch_size=config.train.eval_batch_size, **sizes)

    def batches(self, split: Split, *, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Batches of whole pieces; training pieces are shuffled in every epoch."""
        pieces = getattr(self.pieces, "train" if split == "train_clean" else split)
        order, size = np.arange(len(pieces)), self.eval_batch_size
        if split == "train":
            np.random.RandomState([self.seed, epoch]).shuffle(order)
            size = self.batch_size
        for stop in range(start + size, len(pieces) + size, size):
            chosen = [pieces[i] for i in order[stop - size : stop]]
            yield padded(chosen, stop - size, min(stop, len(pieces)))


def padded(pieces: Sequence[Piece], start: int, stop: int) -> Batch:
    """Pieces side by side; shorter ones are padded, and the padding is not scored."""
    frames = torch.zeros(1 + max(map(len, pieces)), len(pieces), NOTES)
    scored = torch.zeros(frames.shape[:2], dtype=torch.bool)[1:]
    for n, piece in enumerate(pieces):
        frames[1 : 1 + len(piece), n] = torch.from_numpy(piece)
        scored[: len(piece), n] = True
    return Batch(frames[:-1], frames[1:], scored, start, stop, carries=False)
