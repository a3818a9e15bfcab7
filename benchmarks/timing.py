"""Interleaved timing: every rival in one process, round by round, in a rotated order.

A shared machine drifts: its clock, its caches and its neighbours change within seconds. Rivals that
run one after the other measure that drift. Here each round runs every rival once, so that a round
is a fair comparison of its own, and a ratio is the median over the rounds.

A round in which other processes took a share of the machine is run again, and left out if enough
calm ones come together. What decides is the time that others took, never the time of a rival.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

Rival = Callable[[], object]
Rivals = Mapping[str, Rival]

# A call shorter than this is repeated within a measurement: the clock and a loop are not free.
SHORTEST = 0.02
# A round is calm if others took no more than this share of the processors, and the clock's grain.
CALM, GRAIN = 0.05, 0.04


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
    """What was measured of each rival in each round, in seconds, or in another unit.

    ``noise`` is the share of the processors that other processes took meanwhile.
    """

    case: str
    rounds: Mapping[str, list[float]]
    unit: str = "s"
    noise: float = 0.0

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


class Round(NamedTuple):
    """Seconds per call of each rival, and the share of the processors that others took."""

    seconds: dict[str, float]
    noise: float
    calm: bool


def compare(
    case: str, rivals: Rivals, budget: float = 10.0, least: int = 5, most: int = 51
) -> Comparison:
    """Time the rivals in interleaved rounds: as many as ``budget`` seconds hold, within limits."""
    once = {name: warmed_up(rival) for name, rival in rivals.items()}
    calls = {name: max(1, round(SHORTEST / max(t, 1e-9))) for name, t in once.items()}
    planned = sum(calls[name] * once[name] for name in rivals)
    turns = max(least, min(most, int(budget / planned)))
    rounds: list[Round] = []
    gc.collect()
    gc.disable()  # a collection belongs to no rival
    try:
        while len(rounds) < 2 * turns and sum(r.calm for r in rounds) < turns:
            rounds.append(run_round(rivals, order(list(rivals), len(rounds)), calls))
    finally:
        gc.enable()
    return chosen(case, list(rivals), rounds, least)


def warmed_up(rival: Rival) -> float:
    """Seconds of the second call, or of a first so long that its start does not count."""
    first = seconds(rival)
    return first if first > 50 * SHORTEST else seconds(rival)


def run_round(rivals: Rivals, names: list[str], calls: Mapping[str, int]) -> Round:
    """Each rival once, in the order of the names."""
    start, others = time.perf_counter(), seconds_elsewhere()
    measured = {name: seconds(rivals[name], calls[name]) for name in names}
    available = (time.perf_counter() - start) * (os.cpu_count() or 1)
    taken = seconds_elsewhere() - others
    return Round(measured, max(0.0, taken / available), taken <= CALM * available + GRAIN)


def chosen(case: str, names: list[str], rounds: list[Round], least: int) -> Comparison:
    """The calm rounds if there are enough of them, else all."""
    calm = [r for r in rounds if r.calm]
    kept = calm if len(calm) >= least else rounds
    measured = {name: [r.seconds[name] for r in kept] for name in names}
    return Comparison(case, measured, noise=median(r.noise for r in kept))


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


def seconds_elsewhere(stat: Path = Path("/proc/stat")) -> float:
    """Processor seconds that all but this process have taken; 0 where the system does not say."""
    if not stat.exists():
        return 0.0
    user, nice, system, _idle, _wait, irq, softirq, steal = map(
        int, stat.read_text(encoding="utf-8").split()[1:9]
    )
    ticks = user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()
