"""Scores in nats, and the units in which they are reported. Nothing here needs torch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

LARGEST_EXPONENT = 709.0  # exp() of a larger value overflows


@dataclass(frozen=True)
class Score:
    """The score of a model on some data.

    Attributes:
        nats: ``-log p`` per target; negative if a density exceeds one.
        count: the number of targets scored.
        stderr: the standard error of ``nats`` due to noise, if noise is drawn; nan if it cannot be
            estimated.
    """

    nats: float
    count: int
    stderr: float | None = None


@dataclass(frozen=True)
class Unit:
    """The unit of a score. Lower is better in every unit.

    >>> Unit("perplexity", "word").value(math.log(100.0))
    100.00000000000004
    >>> Unit("nats", "frame").value(8.4)
    8.4
    >>> Unit("bits", "character").value(math.log(2.0))
    1.0
    >>> print(Unit("perplexity", "word"), Unit("nats", "frame"), sep=", ")
    perplexity, nats per frame
    """

    name: Literal["perplexity", "nats", "bits"]
    per: str

    def value(self, nats: float) -> float:
        """Convert nats per target to this unit."""
        if self.name == "perplexity":
            return math.exp(nats) if nats < LARGEST_EXPONENT else math.inf
        return nats / math.log(2) if self.name == "bits" else nats

    def nats(self, value: float) -> float:
        """Convert a score in this unit to nats per target: the inverse of :meth:`value`.

        >>> round(Unit("perplexity", "word").nats(100.0), 4), Unit("bits", "character").nats(0.0)
        (4.6052, 0.0)
        """
        if self.name == "perplexity":
            return math.log(value) if value > 0 else -math.inf
        return value * math.log(2) if self.name == "bits" else value

    def error(self, nats: float, stderr: float) -> float:
        """The standard error of :meth:`value`, to first order."""
        if self.name == "perplexity":
            return self.value(nats) * stderr
        return self.value(stderr)

    def __str__(self) -> str:
        return self.name if self.name == "perplexity" else f"{self.name} per {self.per}"

    @property
    def plural(self) -> str:
        """The plural for use in a sentence: ``perplexities``, or ``nats per frame``."""
        return "perplexities" if self.name == "perplexity" else str(self)

    @property
    def targets(self) -> str:
        """What is counted, in the plural: ``tokens`` of a text, else ``frames`` and the like."""
        return "tokens" if self.per == "word" else f"{self.per}s"

    @property
    def log_scale(self) -> bool:
        """Whether an axis of scores is logarithmic; nats and bits are logarithms already."""
        return self.name == "perplexity"

    @property
    def digits(self) -> int:
        """The number of decimals to show."""
        return 1 if self.name == "perplexity" else 3


PERPLEXITY = Unit("perplexity", "word")
NATS_PER_FRAME = Unit("nats", "frame")
NATS_PER_STEP = Unit("nats", "step")
BITS_PER_CHARACTER = Unit("bits", "character")
UNITS = (PERPLEXITY, NATS_PER_FRAME, NATS_PER_STEP, BITS_PER_CHARACTER)


def common(units: Iterable[Unit]) -> str:
    """The heading for scores in one or several units.

    >>> common([PERPLEXITY, PERPLEXITY]), common([PERPLEXITY, NATS_PER_FRAME]), common([])
    ('perplexity', 'score', 'score')
    """
    found = set(units)
    return str(found.pop()) if len(found) == 1 else "score"
