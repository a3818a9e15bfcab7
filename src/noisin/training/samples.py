"""A model on K noise samples of a batch: given K, if it takes ``samples``, else K copies."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from noisin.data import Batch
from noisin.models import Loss
from noisin.models.base import State
from noisin.recurrent.samples import offered


def loss(model: Any, batch: Batch, state: State, K: int) -> Loss:
    """The loss of K samples of a batch."""
    return model.loss(_asked(model, batch, K), state, **_samples(model, K))  # type: ignore[no-any-return]


def log_prob(
    model: Any, batch: Batch, state: State, K: int, **options: Any
) -> tuple[Tensor, State]:
    """``log p`` of each target under K samples, ``(T, K·N)``, and the state."""
    log_p, state = model.log_prob(_asked(model, batch, K), state, **options, **_samples(model, K))
    return log_p, state


def encode(model: Any, batch: Batch, state: State, K: int) -> tuple[Tensor, State]:
    """What the head of a sequence model reads under K samples, and the state."""
    z, state = model.encode(_asked(model, batch, K).x, state, **_samples(model, K))
    return z, state


def _asked(model: Any, batch: Batch, K: int) -> Batch:
    return batch if _samples(model, K) else batch.repeat(K)


def _samples(model: Any, K: int) -> dict[str, int]:
    return {"samples": K} if K > 1 and offered(model) else {}
