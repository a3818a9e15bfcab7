"""Scores in nats, and the units that people read them in. Nothing here needs torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

LARGEST_EXPONENT = 709.0  # exp() of more is infinite


@dataclass(frozen=True)
class Score:
    """How well a model predicts some data.

    Attributes:
        nats: ``-log p`` per target; negative where a density exceeds one.
        count: the number of targets scored.
        stderr: the standard error of ``nats`` over the noise, for a score that has noise; nan where
            it cannot be estimated.
    """

    nats: float
    count: int
    stderr: float | None = None


@dataclass(frozen=True)
class Unit:
    """What a score is reported in.

    >>> Unit("perplexity", "word").value(math.log(100.0))
    100.00000000000004
    >>> Unit("nats", "frame").value(8.4)
    8.4
    >>> Unit("bits", "character").value(math.log(2.0))
    1.0
    """

    name: Literal["perplexity", "nats", "bits"]
    per: str

    def value(self, nats: float) -> float:
        """A score of so many nats per target, in this unit."""
        if self.name == "perplexity":
            return math.exp(nats) if nats < LARGEST_EXPONENT else math.inf
        return nats / math.log(2) if self.name == "bits" else nats

    def error(self, nats: float, stderr: float) -> float:
        """The standard error of :meth:`value`, to first order."""
        if self.name == "perplexity":
            return self.value(nats) * stderr
        return self.value(stderr)


PERPLEXITY = Unit("perplexity", "word")
NATS_PER_FRAME = Unit("nats", "frame")
NATS_PER_STEP = Unit("nats", "step")
BITS_PER_CHARACTER = Unit("bits", "character")
UNITS = (PERPLEXITY, NATS_PER_FRAME, NATS_PER_STEP, BITS_PER_CHARACTER)
