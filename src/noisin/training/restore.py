"""A trained model back from the folder of its run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Literal

from noisin import checks
from noisin.data import Vocabulary
from noisin.errors import InvalidValue
from noisin.models import LanguageModel
from noisin.training.build import build_model
from noisin.training.checkpoint import Checkpoints
from noisin.training.record import RunRecord
from noisin.training.run import load_weights


def restore(
    folder: str | Path,
    which: Literal["best", "last"] = "best",
    weights: Literal["raw", "averaged"] | None = None,
) -> tuple[LanguageModel, Vocabulary]:
    """The model of a run in ``eval()``, and its vocabulary.

    Args:
        folder: of the run; it may still be at work.
        which: the weights of the best epoch by validation, or the last that were saved.
        weights: the raw ones or their average; unless given, those that validation counted.
    """
    checks.one_of("restore: which", which, ("best", "last"))
    checks.one_of("restore: weights", weights, ("raw", "averaged", None))
    record = RunRecord(folder)
    config = record.config
    checkpoints = Checkpoints(record.checkpoints, record.identity)
    checkpoint = checkpoints.newest(lambda message: warnings.warn(message, stacklevel=4))
    if checkpoint is None:
        raise InvalidValue(
            f"{record.folder} has saved no weights yet. Train it for longer: the same command goes "
            f"on with it."
        )
    if which == "best":
        checkpoint = checkpoints.best(checkpoint)
    if weights is None:
        course = checkpoint.state["course"]
        counted = course["best_weights"] == "averaged" if which == "best" else course["averaging"]
        weights = "averaged" if counted and config.train.averaging == "nt" else "raw"
    chosen = checkpoint.weights if weights == "raw" else checkpoint.average
    if chosen is None:
        raise InvalidValue(
            f"{record.folder} has no averaged weights there (train.averaging = "
            f"{config.train.averaging!r}). Use the raw ones."
        )
    vocabulary = record.vocabulary
    model = build_model(config, len(vocabulary))
    load_weights(dict(model.named_parameters()), chosen)
    return model.eval(), vocabulary
