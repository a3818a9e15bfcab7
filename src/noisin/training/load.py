"""A trained model, from the record of its run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from noisin._util import arguments, checks
from noisin.data import Vocabulary
from noisin.errors import InvalidValue, Unavailable
from noisin.models import LanguageModel
from noisin.training.build import build_model
from noisin.training.checkpoint import Checkpoints
from noisin.training.config import RunConfig
from noisin.training.contents import Pattern
from noisin.training.record import RunRecord
from noisin.training.runtime.device import own_random_stream
from noisin.training.schedule import Course, Weights
from noisin.training.state import load_weights

When = Literal["best", "last"]


@dataclass(frozen=True)
class Restored:
    """A model as a checkpoint has it.

    Attributes:
        model: in eval mode, on the CPU.
        vocab, config: those of its run.
        epoch: the epochs that were over.
        weights: whether these are the raw weights or their average.
    """

    model: LanguageModel
    vocab: Vocabulary
    config: RunConfig
    epoch: int
    weights: Weights


def restore(
    record: RunRecord,
    when: When = "best",
    weights: Weights | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Restored:
    """The model of a run, at its best epoch or as last saved.

    Args:
        record: of the run, which may be going on still.
        when: the best epoch of these weights so far, or the newest checkpoint.
        weights: the raw ones or their average; unless given, those with the lower validation
            perplexity, each at its best.
        note: told of a damaged checkpoint that is passed over.
    """
    arguments.instance("restore: record", record, RunRecord, "Pass training.RunRecord(folder).")
    checks.one_of("restore: when", when, get_args(When))
    checks.one_of("restore: weights", weights, (None, *get_args(Weights)))
    config, vocab = record.config, record.vocabulary
    with own_random_stream(torch.device("cpu")):
        model = build_model(config, len(vocab))
    own = dict(model.named_parameters())
    checkpoints = Checkpoints(record.checkpoints, record.identity, Pattern(own))
    checkpoint = checkpoints.newest(note)
    if checkpoint is None:
        raise Unavailable(f"{record.folder}: has no checkpoint yet. Train it first.")
    if weights is None:
        weights = Course.from_state_dict(checkpoint.state["course"]).best_weights
    if when == "best":
        checkpoint = checkpoints.best(checkpoint, weights)
    saved = checkpoint.weights if weights == "raw" else checkpoint.average
    if saved is None:
        raise InvalidValue(
            f"{record.folder}: has no averaged weights (train.averaging = "
            f"{config.train.averaging!r}). Ask for the raw ones."
        )
    load_weights(own, saved)
    return Restored(model.eval(), vocab, config, checkpoint.manifest.epoch, weights)
