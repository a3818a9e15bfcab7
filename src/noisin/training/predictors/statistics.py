"""The gradients of a trained model on its training data, which scale dynamic evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from noisin._util import arguments
from noisin.data import Batch
from noisin.errors import InvalidValue
from noisin.training.predictors.base import Clean, in_rows
from noisin.training.predictors.gradients import read_with_gradients


@dataclass(frozen=True)
class Statistics:
    """Sums of squares of the gradients of segments.

    Attributes:
        sums: the sum for each parameter that is adapted, in the order of ``model.parameters()``.
        n: the number of segments.
    """

    sums: Sequence[Tensor]
    n: int

    @cached_property
    def roots(self) -> list[Tensor]:
        """The root mean square of each element."""
        return [(total / self.n).sqrt() for total in self.sums]


def adapted_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that dynamic evaluation changes."""
    found = [p for p in model.parameters() if p.requires_grad]
    if not found:
        raise InvalidValue(
            f"Dynamic: {type(model).__name__} has no parameters that require gradients, so there "
            f"is nothing to adapt. Use Clean(model)."
        )
    return found


def gradient_statistics(
    model: nn.Module,
    batches: Iterable[Batch],
    segment: int = 5,
    progress: Callable[[Batch], None] = lambda _: None,
) -> Statistics:
    """The squares of the gradients of the mean nll of each segment, without noise and dropout.

    Args:
        model: the trained model.
        batches: the training data, with 100 columns in the literature.
        segment: the rows of a segment.
        progress: called with each segment after it.

    >>> import numpy as np
    >>> from noisin import data, models
    >>> model = models.LanguageModel(3, hidden_size=4)
    >>> text = data.Windows(np.arange(22) % 3, batch_size=2, length=70)
    >>> gradient_statistics(model, text.epoch(0)).n
    2
    """
    arguments.whole("gradient_statistics: segment", segment)
    clean, parameters = Clean(model), adapted_parameters(model)
    sums, n, state = [torch.zeros_like(p.detach()) for p in parameters], 0, None
    for batch in in_rows(batches, segment):
        before = state if batch.carries else None
        reading, found = read_with_gradients(clean, parameters, batch, before)
        state = reading.state
        if found is not None:
            torch._foreach_addcmul_(sums, found, found)
            n += 1
        progress(batch)
    if not n:
        raise InvalidValue("gradient_statistics: expected training data, got no scored targets.")
    return Statistics(sums, n)
