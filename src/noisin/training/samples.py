"""A model on K noise samples of a batch: given K, if it takes ``samples``, else K copies.

Samples that differ by weights, or by anything else that all rows have in common, are K passes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from noisin._util import states
from noisin.data import Batch
from noisin.errors import Unsupported
from noisin.models import Loss
from noisin.models.base import State, mean_over_scored
from noisin.recurrent.samples import offered, passes, rows_share, side_by_side


def loss(model: Any, batch: Batch, state: State, K: int) -> Loss:
    """The loss of K samples of a batch."""
    return model.loss(_asked(model, batch, K), state, **_samples(model, K))  # type: ignore[no-any-return]


def losses(model: Any, batch: Batch, state: State, K: int) -> Loss:
    """The loss of K samples with the nll of each target, ``(T, K·N)``.

    A model whose ``loss`` takes ``each`` computes it with its terms. Of any other model, the loss
    is that of its ``log_prob``.
    """
    if "each" in inspect.signature(model.loss).parameters:
        if K > 1 and rows_share(model):
            N = batch.x.shape[1]
            return _joined(passes(model, state, N, K, lambda s: losses(model, batch, s, 1)))
        found: Loss = model.loss(_asked(model, batch, K), state, each=True, **_samples(model, K))
        return found
    if getattr(model, "terms", ()):
        raise Unsupported(
            f"training: this objective needs -log p of each target together with the terms of "
            f"{type(model).__name__}, whose loss does not take each=True. Accept that argument "
            f"and return Loss(..., nll=nll), or train without terms."
        )
    log_p, state = log_prob(model, batch, state, K)
    copies = batch.repeat(K)
    return Loss(mean_over_scored(-log_p, copies), copies.count, state=state, nll=-log_p)


def log_prob(
    model: Any, batch: Batch, state: State, K: int, **options: Any
) -> tuple[Tensor, State]:
    """``log p`` of each target under K samples, ``(T, K·N)``, and the state."""
    if K > 1 and rows_share(model):
        return _one_by_one(
            model, batch, state, K, lambda s: log_prob(model, batch, s, 1, **options)
        )
    log_p, state = model.log_prob(_asked(model, batch, K), state, **options, **_samples(model, K))
    return log_p, state


def encode(model: Any, batch: Batch, state: State, K: int) -> tuple[Tensor, State]:
    """What the head of a sequence model reads under K samples, and the state."""
    if K > 1 and rows_share(model):
        return _one_by_one(model, batch, state, K, lambda s: encode(model, batch, s, 1))
    z, state = model.encode(_asked(model, batch, K).x, state, **_samples(model, K))
    return z, state


def _one_by_one(
    model: Any, batch: Batch, state: State, K: int, run: Callable[[State], tuple[Tensor, State]]
) -> tuple[Tensor, State]:
    N = batch.x.shape[1]
    return side_by_side(passes(model, state, N, K, run), N)


def _joined(found: list[Loss]) -> Loss:
    """The losses of samples as that of K copies of the rows."""
    nll = [one.nll for one in found if one.nll is not None]
    return Loss(
        torch.stack([one.mean for one in found]).mean(),
        sum(one.count for one in found),
        {name: torch.stack([one.terms[name] for one in found]).mean() for name in found[0].terms},
        states.join([one.state for one in found], nll[0].shape[1]),
        torch.cat(nll, 1),
    )


def _asked(model: Any, batch: Batch, K: int) -> Batch:
    return batch if _samples(model, K) else batch.repeat(K)


def _samples(model: Any, K: int) -> dict[str, int]:
    return {"samples": K} if K > 1 and offered(model) else {}
