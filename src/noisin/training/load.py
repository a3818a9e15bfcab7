"""Load a trained model from the record of its run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from noisin._util import arguments, checks
from noisin.data import Vocabulary
from noisin.errors import InvalidValue, Unavailable
from noisin.tasks import Observation
from noisin.training.build import build_model
from noisin.training.checkpoint import AVERAGE, WEIGHTS, Checkpoints
from noisin.training.config import RunConfig
from noisin.training.contents import Pattern
from noisin.training.record import RunRecord
from noisin.training.runtime.device import own_random_stream
from noisin.training.schedule import Schedule, Weights
from noisin.training.state import load_weights, weights_of

When = Literal["best", "last"]


@dataclass(frozen=True)
class Restored:
    """A model with the weights of a checkpoint.

    Attributes:
        model: the model, in eval mode, on the CPU.
        vocab: the words of a language model; None for other models.
        config: the settings of its run.
        epoch: the number of completed epochs.
        weights: whether these are the raw weights or their average.
    """

    model: Any
    vocab: Vocabulary | None
    config: RunConfig
    epoch: int
    weights: Weights


def restore(
    record: RunRecord,
    when: When = "best",
    weights: Weights | None = None,
    note: Callable[[str], None] = lambda _: None,
    model: nn.Module | None = None,
) -> Restored:
    """The model of a run, at its best epoch or as last saved.

    Args:
        record: the record of the run, which may still be training.
        when: the best epoch of these weights so far, or the newest checkpoint.
        weights: raw or averaged; by default those with the lower score on valid, each at its best
            epoch.
        note: called with a message if a damaged checkpoint is skipped.
        model: the model to load the weights into; by default it is built from the settings.
            Required for a run of a custom model.
    """
    arguments.instance("restore: record", record, RunRecord, "Pass training.RunRecord(folder).")
    checks.one_of("restore: when", when, get_args(When))
    checks.one_of("restore: weights", weights, (None, *get_args(Weights)))
    config, observation = record.config, _observation(record)
    vocab = record.vocabulary if observation.likelihood == "categorical" else None
    if model is None:
        model = _build(record, observation)
    own = weights_of(model)
    found = read_weights(record, when, weights, note, Pattern(own))
    load_weights(own, found.values)
    return Restored(model.eval(), vocab, config, found.epoch, found.kind)


class SavedWeights(NamedTuple):
    """The weights of a checkpoint by name, their kind, their epoch, and the hash of their file."""

    values: Mapping[str, Tensor]
    kind: Weights
    epoch: int
    sha256: str


def read_weights(
    record: RunRecord,
    when: When = "best",
    weights: Weights | None = None,
    note: Callable[[str], None] = lambda _: None,
    pattern: Pattern | None = None,
) -> SavedWeights:
    """The weights of a run, chosen as in :func:`restore`; ``pattern`` is what they must match."""
    checkpoints = Checkpoints(record.checkpoints, record.identity, pattern)
    checkpoint = checkpoints.newest(note)
    if checkpoint is None:
        raise Unavailable(f"{record.folder}: has no checkpoint yet. Train it first.")
    schedule = Schedule.from_state_dict(checkpoint.state["schedule"])
    weights = schedule.best_weights if weights is None else weights
    if when == "best":
        if weights in schedule.bests and weights not in checkpoint.manifest.best:
            raise InvalidValue(
                f"{checkpoints.path(checkpoint.manifest.number)}: is damaged: its manifest does "
                f"not name the best checkpoint of the {weights} weights, which were scored. Use "
                f"the newest one, or train again."
            )
        checkpoint = checkpoints.best(checkpoint, weights)
    saved = checkpoint.weights if weights == "raw" else checkpoint.average
    if saved is None:
        raise InvalidValue(
            f"{record.folder}: has no averaged weights (train.averaging = "
            f"{record.config.train.averaging!r}). Use the raw weights."
        )
    manifest = checkpoint.manifest
    file = WEIGHTS if weights == "raw" else AVERAGE
    return SavedWeights(saved, weights, manifest.epoch, manifest.files[file])


def _observation(record: RunRecord) -> Observation:
    """What the model predicts; in records of older versions always words."""
    known = record.environment.get("observation")
    if known is not None:
        return Observation(known["likelihood"], known["size"], inputs=known.get("inputs"))
    if record.config.own is not None:
        return Observation("own", 0)
    return Observation("categorical", len(record.vocabulary))


def _build(record: RunRecord, observation: Observation) -> nn.Module:
    own = record.config.own
    if own is not None:
        raise InvalidValue(
            f"{record.folder}: is a run of {own.model['name']}, which was not built "
            f"from settings. Pass the model: restore(record, model=model)."
        )
    with own_random_stream(torch.device("cpu")):
        model: nn.Module = build_model(record.config, observation)
        return model
