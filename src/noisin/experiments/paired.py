"""Two arms over common seeds: is one better, are they equal, or is it not decided?

The values are paired: runs of one seed have the same initial weights and the same order of the
data. Their differences are tested by Student's t. To be called equal, two arms must be shown to be:
by two one-sided tests, that the difference is above ``-margin`` and below ``margin``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from noisin.errors import InvalidValue
from noisin.experiments.intervals import Interval, two_sided

Verdict = Literal["lower", "higher", "equal", "not decided"]


@dataclass(frozen=True)
class Paired:
    """The differences of an arm from another, over the seeds that both have.

    Attributes:
        difference: their mean, and its 95 % interval.
        p: the probability of a difference as large or larger by chance, if there is none.
        p_apart: the probability of one as small or smaller by chance, if the arms are ``margin``
            apart.
        margin: smaller differences do not matter.

    >>> one, other = {1: 5.0, 2: 5.1, 3: 5.2, 4: 5.0}, {1: 5.1, 2: 5.3, 3: 5.3, 4: 5.2}
    >>> found = Paired.of(one, other, margin=0.01)
    >>> round(found.difference.mean, 3), round(found.p, 4), found.verdict(found.p)
    (-0.15, 0.0138, 'lower')
    """

    difference: Interval
    p: float
    p_apart: float
    margin: float

    @classmethod
    def of(cls, values: Mapping[int, float], others: Mapping[int, float], margin: float) -> Paired:
        """Of values by seed, such as log-perplexities."""
        seeds = sorted(values.keys() & others.keys())
        if len(seeds) < 2:
            raise InvalidValue(f"Paired: expected two common seeds or more, got {seeds}.")
        differences = [values[seed] - others[seed] for seed in seeds]
        mean, n = statistics.fmean(differences), len(seeds)
        error = statistics.stdev(differences) / math.sqrt(n)
        return cls(
            Interval.of(differences),
            two_sided(_ratio(mean, error), n - 1),
            max(_below(mean - margin, error, n - 1), _below(-mean - margin, error, n - 1)),
            margin,
        )

    def verdict(self, p: float, level: float = 0.05) -> Verdict:
        """What is shown, with a p that is corrected for the number of questions."""
        if p < level:
            return "lower" if self.difference.mean < 0 else "higher"
        return "equal" if self.p_apart < level else "not decided"


def _ratio(value: float, error: float) -> float:
    if error > 0:
        return value / error
    return 0.0 if value == 0 else math.copysign(math.inf, value)


def _below(value: float, error: float, degrees: int) -> float:
    """The p of the one-sided test that the mean of what has this value and error is below 0."""
    t = _ratio(value, error)
    half = two_sided(t, degrees) / 2
    return half if t < 0 else 1 - half


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's correction for several questions: each p as it would have to be below the level.

    The probability that any is below the level by chance is then at most the level.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected, largest = [0.0] * len(ps), 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[index]))
        corrected[index] = largest
    return corrected
