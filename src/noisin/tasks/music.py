"""Polyphonic music: predict the notes of the next frame, whole pieces at a time.

The score is ``-log p`` of a frame, summed over its 88 notes, averaged over all frames of all
pieces. Every frame is scored: the first one is predicted from a frame of silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from noisin.data import music
from noisin.data.corpus import SPLITS
from noisin.data.music import NOTES, Piece, Pieces
from noisin.tasks.base import Observation
from noisin.tasks.sequences import Sequences, Steps
from noisin.tasks.unit import NATS_PER_FRAME

if TYPE_CHECKING:
    from noisin.training.config import RunConfig


class Music(Sequences):
    """The pieces of a data set: padded batches in random order, each from a zero state.

    Args:
        pieces: the data, such as ``noisin.data.music.load("jsb")``.
        batch_size, eval_batch_size: pieces in a batch.
        clean_frames: how much of the training data to score without noise after every epoch.
        seed: the seed of the order of the pieces, which depends only on seed and epoch.
    """

    unit = NATS_PER_FRAME

    def __init__(
        self,
        pieces: Pieces,
        *,
        batch_size: int = 8,
        eval_batch_size: int = 10,
        clean_frames: int = 100_000,
        seed: int = 1111,
    ) -> None:
        self.pieces, self.name, self.sha256 = pieces, pieces.name, pieces.sha256
        super().__init__(
            {split: [after_silence(piece) for piece in getattr(pieces, split)] for split in SPLITS},
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            clean_steps=clean_frames,
            seed=seed,
        )
        sounding = np.concatenate(pieces.train).sum(0)
        p = (sounding + 0.5) / (sum(map(len, pieces.train)) + 1)  # never 0
        self.observation = Observation("bernoulli", NOTES, bias=np.log(p / (1 - p)).tolist())

    @classmethod
    def from_config(cls, config: RunConfig) -> Self:
        """The task of a config."""
        train = config.train
        return cls(
            music.load(config.data.name, config.data.folder),
            batch_size=train.batch_size,
            eval_batch_size=train.eval_batch_size,
            clean_frames=train.clean_tokens,
            seed=config.seed,
        )


def after_silence(piece: Piece) -> Steps:
    """The frames of a piece, each predicted from the one before; the first one from silence."""
    frames = np.concatenate([np.zeros_like(piece[:1]), piece])
    return Steps(frames[:-1], frames[1:], np.ones(len(piece), bool))
