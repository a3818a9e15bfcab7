"""Interleaved timing: every rival in one process, round by round, in a rotated order.

A shared machine drifts: its clock, its caches and its neighbours change within seconds. Rivals that
run one after the other measure that drift. Here each round runs every rival once, so that a round
is a fair comparison of its own, and a ratio is the median over the rounds.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import NamedTuple

Rival = Callable[[], object]
Rivals = Mapping[str, Rival]

# A call shorter than this is repeated within a measurement: the clock and a loop are not free.
SHORTEST = 0.005


class Spread(NamedTuple):
    """A median with its quartiles."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """The quartiles of some values.

        >>> Spread.of([4.0, 1.0, 2.0, 3.0, 5.0])
        Spread(low=2.0, median=3.0, high=4.0)
        """
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, _, high = quantiles(values, n=4, method="inclusive")
        return cls(low, median(values), high)


@dataclass(frozen=True)
class Comparison:
    """What was measured of each rival in each round, in seconds, or in another unit."""

    case: str
    rounds: Mapping[str, list[float]]
    unit: str = "s"

    def spread(self, rival: str) -> Spread:
        """Median and quartiles of one rival."""
        return Spread.of(self.rounds[rival])

    def ratio(self, rival: str, over: str) -> Spread:
        """Median and quartiles of the ratio within a round, which the drift of the machine spares.

        >>> Comparison("toy", {"a": [1.0, 2.0, 3.0], "b": [2.0, 4.0, 3.0]}).ratio("a", over="b")
        Spread(low=0.5, median=0.5, high=0.75)
        """
        pairs = zip(self.rounds[rival], self.rounds[over], strict=True)
        return Spread.of([a / b for a, b in pairs])

    def ratio_of_medians(self, rival: str, over: str) -> float:
        """The same from the medians of the two: close to ``ratio``, or the machine was not calm."""
        return self.spread(rival).median / self.spread(over).median


def seconds(rival: Rival, calls: int = 1) -> float:
    """Seconds per call."""
    start = time.perf_counter()
    for _ in range(calls):
        rival()
    return (time.perf_counter() - start) / calls


def order(names: list[str], turn: int) -> list[str]:
    """Rotated by one each turn, and reversed every other, so that no rival has one predecessor.

    >>> [order(["a", "b", "c"], turn) for turn in range(3)]
    [['a', 'b', 'c'], ['a', 'c', 'b'], ['c', 'a', 'b']]
    """
    first = turn % len(names)
    rotated = names[first:] + names[:first]
    return rotated if turn % 2 == 0 else rotated[::-1]


def compare(
    case: str, rivals: Rivals, budget: float = 20.0, least: int = 9, most: int = 101
) -> Comparison:
    """Time the rivals in interleaved rounds: as many as fit in ``budget`` seconds, within limits.

    Every rival runs twice before the first round: to warm up, and to learn how long it takes.
    """
    for rival in rivals.values():
        rival()
    calls, planned = {}, 0.0
    for name, rival in rivals.items():
        once = seconds(rival)
        calls[name] = max(1, round(SHORTEST / max(once, 1e-9)))
        planned += calls[name] * once
    turns = max(least, min(most, int(budget / planned)))
    measured: dict[str, list[float]] = {name: [] for name in rivals}
    gc.collect()
    gc.disable()  # a collection belongs to no rival
    try:
        for turn in range(turns):
            for name in order(list(rivals), turn):
                measured[name].append(seconds(rivals[name], calls[name]))
    finally:
        gc.enable()
    return Comparison(case, measured)
