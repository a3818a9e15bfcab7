"""Search for the settings of a predictor: along one setting after another, with a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from noisin._util import arguments

Point = dict[str, Any]

TEMPERATURES = (0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5)
LAMBDAS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6)
THETAS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0)
WINDOWS = (50, 100, 200, 500, 1000, 2000, 4000, 8000)
POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
FACTORS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Trial:
    """A point that was tried, and its score; infinite if it was not a number."""

    settings: Point
    nats: float


class _Spent(Exception):
    """The budget is used up."""


def grids(
    start: Mapping[str, Any], longest: int, fixed: Sequence[str] = ()
) -> dict[str, list[Any]]:
    """The values to try of each setting, in the order in which settings are tried.

    Args:
        start: where to start; its values are in the grids.
        longest: the largest window of a cache.
        fixed: settings to leave as they are.

    >>> grids({"temperature": 1.0, "cache.window": 70}, longest=150)["cache.window"]
    [50, 70, 100]
    """
    lr, decay = start.get("dynamic.lr", 0.0), start.get("dynamic.decay", 0.0)
    epsilon = start.get("dynamic.epsilon", 0.0)
    known: dict[str, Sequence[Any]] = {
        "cache.lambda": LAMBDAS,
        "cache.theta": THETAS,
        "cache.window": [window for window in WINDOWS if window <= longest],
        "dynamic.lr": [factor * lr for factor in FACTORS],
        "dynamic.decay": [0.0, *(f * decay for f in FACTORS if f * decay < 1)],
        "dynamic.epsilon": [10.0**k * epsilon for k in range(-2, 3)],
        "power": POWERS,
        "temperature": TEMPERATURES,
    }
    if start.get("dynamic.normalisation") == "sgd":
        known["dynamic.decay"] = [0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2]
        del known["dynamic.epsilon"]
    return {
        name: sorted({*values, start[name]})
        for name, values in known.items()
        if name in start and name not in fixed
    }


def search(
    measure: Callable[[Point], float],
    start: Mapping[str, Any],
    values: Mapping[str, Sequence[Any]],
    budget: int,
) -> list[Trial]:
    """Coordinate descent: all points that were tried, in order.

    From the best point so far, a setting goes to the next larger and smaller values as long as the
    score falls; then the next setting does. It ends when no setting moves, or with the budget.

    >>> def bowl(point):
    ...     return (point["a"] - 3) ** 2 + (point["b"] - 1) ** 2
    >>> trials = search(bowl, {"a": 0, "b": 0}, {"a": range(6), "b": range(6)}, budget=99)
    >>> best(trials).settings, len(trials)
    ({'a': 3, 'b': 1}, 9)
    """
    arguments.whole("tune: budget", budget)
    known: dict[tuple[Any, ...], Trial] = {}

    def tried(point: Point) -> Trial:
        key = tuple(point.values())
        if key not in known:
            if len(known) >= budget:
                raise _Spent
            nats = measure(point)
            known[key] = Trial(point, nats if math.isfinite(nats) else math.inf)
        return known[key]

    try:
        now, before = tried(dict(start)), None
        while now != before:
            before = now
            for name, grid in values.items():
                for direction in (1, -1):
                    now = _walked(tried, now, name, list(grid)[::direction])
    except _Spent:
        pass
    return list(known.values())


def _walked(tried: Callable[[Point], Trial], now: Trial, name: str, grid: list[Any]) -> Trial:
    """The best point on the way through the rest of a grid, as long as the score falls."""
    for value in grid[grid.index(now.settings[name]) + 1 :]:
        other = tried({**now.settings, name: value})
        if other.nats >= now.nats:
            break
        now = other
    return now


def best(trials: Sequence[Trial]) -> Trial:
    """The trial with the lowest score, the first of equal ones."""
    return min(trials, key=lambda trial: trial.nats)
