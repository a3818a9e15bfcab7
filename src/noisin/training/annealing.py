"""Annealing of the KL divergence of a stochastic RNN.

The weight depends on the epoch and the step alone, which a checkpoint has, so that a run that was
stopped continues with the same weights.
"""

from __future__ import annotations

from typing import Any

from noisin.errors import Unsupported
from noisin.training.config import TrainConfig


def require_kl(train: TrainConfig, model: object) -> None:
    """Raise if annealing is asked for and the model has no KL divergence to weight."""
    if train.annealing is not None and not hasattr(model, "kl_weight"):
        raise Unsupported(
            f"training: train.annealing sets the attribute kl_weight of a model with latent "
            f"variables, and {type(model).__name__} has none. Leave train.annealing out."
        )


def anneal(model: Any, train: TrainConfig, epoch: int, step: int) -> None:
    """Set the weight for the next step of training."""
    if train.annealing is not None:
        model.kl_weight = train.annealing.weight(epoch, step)
