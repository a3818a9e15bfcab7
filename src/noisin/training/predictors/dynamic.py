r"""Dynamic evaluation (Krause, Kahembwe, Murray and Renals, 2018, "Dynamic evaluation of neural
sequence models"): after each segment was scored, the weights take a gradient step on it.

.. math:: θ ← θ + λ R ⊙ (θ_0 - θ) - η g / (M + ε)

with the gradient g of the mean nll of the segment, the trained weights θ₀, to which the weights
decay, and M and R from the gradients of the training data (:mod:`.rates`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from noisin._util import arguments
from noisin.data import Batch
from noisin.errors import InvalidValue
from noisin.models.base import State
from noisin.training.predictors.base import Reader, Reading, as_reader
from noisin.training.predictors.gradients import read_with_gradients
from noisin.training.predictors.rates import Rates
from noisin.training.predictors.statistics import Statistics, adapted_parameters

ROWS = 70  # of a batch, about


class Adapted(NamedTuple):
    """The state of dynamic evaluation: that of its predictor, and the weights."""

    inner: State
    weights: tuple[Tensor, ...]


@dataclass(frozen=True)
class Dynamic:
    """A predictor whose weights adapt to what it has scored, by one step after each segment.

    The adapted weights are part of the state. The model has them only during a call: afterwards,
    also after an exception or Ctrl-C, its own are back, untouched. All columns of a batch share
    the weights, so one column is usual. Where a sequence starts from a state of zero, it starts
    from the trained weights too.

    Args:
        predictor: a model, which is used without noise, or a predictor with one hidden state,
            such as ``Cache(model)``, of which the gradient then is.
        rates: η, λ, ε, and what M and R are.
        statistics: of the gradients, from :func:`~.statistics.gradient_statistics`; not needed for
            the normalisation "sgd".
        segment: the rows of a segment.

    >>> from noisin import models
    >>> from noisin.training.predictors import SGD
    >>> lm = models.LanguageModel(10, hidden_size=4)
    >>> x = torch.ones(40, 1, dtype=torch.long)
    >>> log_p, _ = Dynamic(lm, SGD)(Batch(x, x))
    >>> bool(log_p[-1] > log_p[0])
    True
    """

    predictor: Reader
    rates: Rates = Rates()  # noqa: RUF009 - frozen
    statistics: Statistics | None = None
    segment: int = 5

    def __post_init__(self) -> None:
        object.__setattr__(self, "predictor", as_reader("Dynamic", self.predictor))
        arguments.instance("Dynamic: rates", self.rates, Rates, "Pass, for example, Rates().")
        arguments.whole("Dynamic: segment", self.segment)
        if self.statistics is not None:
            arguments.instance(
                "Dynamic: statistics",
                self.statistics,
                Statistics,
                "Compute it: gradient_statistics(model, batches).",
            )
            self._check_shapes(self.statistics)
        _ = self._steps  # raises if it needs statistics

    def _check_shapes(self, statistics: Statistics) -> None:
        shapes = [tuple(p.shape) for p in self._parameters]
        given = [tuple(total.shape) for total in statistics.sums]
        if shapes != given:
            raise InvalidValue(
                f"Dynamic: the statistics are of another model: expected tensors of shapes "
                f"{shapes}, got {given}."
            )

    @property
    def model(self) -> nn.Module:
        """The model that it predicts with."""
        return self.predictor.model

    @property
    def rows(self) -> int:
        """The rows of a batch that is a whole number of segments."""
        return self.segment * max(1, ROWS // self.segment)

    @property
    def _parameters(self) -> list[nn.Parameter]:
        return adapted_parameters(self.model)

    @cached_property
    def _steps(self) -> tuple[list[Tensor], list[Tensor]]:
        with torch.no_grad():
            return self.rates.steps(self._parameters, self.statistics)

    def __call__(self, batch: Batch, state: State = None) -> tuple[Tensor, State]:
        """Score a batch."""
        log_p, _, state = self.read(batch, state)
        return log_p, state

    def read(self, batch: Batch, state: State = None) -> Reading:
        """Score a batch, and return what the head read. Nothing of it is differentiable."""
        parameters = self._parameters
        trained = [p.data for p in parameters]
        inner, weights = (None, trained) if state is None else state
        weights = tuple(w.clone() for w in weights)
        parts = []
        with _replaced(parameters, weights):
            for first in range(0, len(batch.x), self.segment):
                segment = batch.rows(slice(first, first + self.segment))
                reading, gradients = read_with_gradients(self.predictor, parameters, segment, inner)
                inner = reading.state
                parts.append(reading)
                if gradients is not None:
                    self._update(weights, trained, gradients)
        zs = [part.z for part in parts if part.z is not None]
        z = torch.cat(zs) if zs else None
        return Reading(torch.cat([part.log_p for part in parts]), z, Adapted(inner, weights))

    def _update(
        self, weights: tuple[Tensor, ...], trained: list[Tensor], gradients: list[Tensor]
    ) -> None:
        steps, decays = self._steps
        with torch.no_grad():
            if self.rates.decay:
                torch._foreach_lerp_(weights, trained, decays)
            torch._foreach_addcmul_(weights, gradients, steps, value=-1)


@contextmanager
def _replaced(parameters: Sequence[nn.Parameter], weights: Sequence[Tensor]) -> Iterator[None]:
    """Let a model have other weights. Its own are set aside and not written to."""
    own = [parameter.data for parameter in parameters]
    try:
        for parameter, weight in zip(parameters, weights, strict=True):
            parameter.data = weight
        yield
    finally:
        for parameter, weight in zip(parameters, own, strict=True):
            parameter.data = weight
