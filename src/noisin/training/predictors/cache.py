r"""The continuous cache (Grave, Joulin and Usunier, 2017, "Improving neural language models with a
continuous cache"): words that followed similar hidden states become more probable.

With the last W pairs ``(h_i, x_{i+1})`` of a hidden state and the word that followed it,

.. math::

    p_{cache}(w) \propto \sum_i 1[x_{i+1} = w] \exp(\theta\, h_t^T h_i), \qquad
    p(w) = (1 - \lambda)\, p_{model}(w) + \lambda\, p_{cache}(w).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from noisin._util import arguments
from noisin.data import Batch
from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.models import SequenceModel
from noisin.models.base import State
from noisin.training.predictors.base import Reader, Reading, as_reader

ROWS = 64  # steps to compare with the cache at a time


class Cached(NamedTuple):
    """The state of a cache: that of its predictor, and the pairs, the oldest first."""

    inner: State
    keys: Tensor  # (pairs, N, H): the hidden states
    words: Tensor  # (pairs, N, 1): the words that followed


@dataclass(frozen=True)
class Cache:
    """A predictor with a continuous cache of the last ``window`` words of each column.

    It is active from the first word on, except that λ is 0 while the cache is empty. A word is not
    in the cache from which it is predicted.

    Args:
        predictor: a model, which is used without noise, or a predictor with one hidden state.
        window: the number W of pairs.
        theta: how much similarity counts, θ; at 0 all pairs count alike.
        lambda_: the share λ of the cache, in [0, 1).

    >>> from noisin import models
    >>> lm = models.LanguageModel(10, hidden_size=4)
    >>> x = torch.tensor([[1], [2], [1], [2], [1]])
    >>> log_p, _ = Cache(lm, window=3, theta=0.0, lambda_=0.5)(Batch(x[:-1], x[1:]))
    >>> (log_p[2:] > math.log(0.5 * 1 / 3)).all()
    tensor(True)
    """

    predictor: Reader
    window: int = 500
    theta: float = 0.6
    lambda_: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "predictor", as_reader("Cache", self.predictor))
        arguments.whole("Cache: window", self.window)
        arguments.finite("Cache: theta", self.theta, least=0)
        share("Cache: lambda_", self.lambda_)
        if not isinstance(self.model, SequenceModel):
            raise InvalidType(
                f"Cache: expected a SequenceModel, whose hidden states it compares, got "
                f"{type(self.model).__name__}."
            )

    @property
    def model(self) -> nn.Module:
        """The model that it predicts with."""
        return self.predictor.model

    @property
    def rows(self) -> int | None:
        """The rows of a batch that its predictor asks for."""
        rows: int | None = getattr(self.predictor, "rows", None)
        return rows

    def __call__(self, batch: Batch, state: State = None) -> tuple[Tensor, State]:
        """Score a batch."""
        with torch.no_grad():
            log_p, _, state = self.read(batch, state)
        return log_p, state

    def read(self, batch: Batch, state: State = None) -> Reading:
        """Score a batch, and return what the head read."""
        if batch.target.dim() != 2 or batch.target.is_floating_point():
            raise Unsupported(
                f"Cache: expected words to predict, (T, N), got targets of shape "
                f"{tuple(batch.target.shape)} and {batch.target.dtype}."
            )
        log_p, z, inner = self.predictor.read(batch, None if state is None else state.inner)
        assert z is not None
        words = batch.target.to(z.device).unsqueeze(-1)
        keys, known = (z[:0], words[:0]) if state is None else (state.keys, state.words)
        parts = []
        for part, h, x in zip(*(torch.split(t, ROWS) for t in (log_p, z, words)), strict=True):
            keys, known = torch.cat([keys, h]), torch.cat([known, x])
            parts.append(part if self.lambda_ == 0 else self._mixed(part, h, x, keys, known))
            keys, known = keys[-self.window :], known[-self.window :]
        return Reading(torch.cat(parts), z, Cached(inner, keys.detach(), known))

    def _mixed(self, log_p: Tensor, h: Tensor, x: Tensor, keys: Tensor, words: Tensor) -> Tensor:
        """``log p`` of the words x, given pairs of which those of x itself are the last."""
        scores = self.theta * torch.einsum("tnh,inh->tni", h, keys)
        steps = torch.arange(len(keys), device=h.device)
        age = steps[-len(h) :, None, None] - steps
        known = (age > 0) & (age <= self.window)
        # Not minus infinity: its gradient is nan where no pair is known, or none is of this word.
        never = torch.finfo(scores.dtype).min / 4
        scores = scores.masked_fill(~known, never)
        found = scores.masked_fill(x != words.squeeze(-1).t(), never)
        log_cache = found.logsumexp(-1) - scores.logsumexp(-1)
        mixed = torch.logaddexp(
            log_p + math.log1p(-self.lambda_), log_cache + math.log(self.lambda_)
        )
        return mixed.where(known.any(-1), log_p)


def share(name: str, value: float) -> None:
    """Raise unless the value lies in [0, 1)."""
    if arguments.finite(name, value, least=0) >= 1:
        raise InvalidValue(f"{name} must lie in [0, 1), got {value!r:.60}.")
