"""The search for settings: it finds the lowest point, within its budget, and says what it tried."""

from __future__ import annotations

import math
from typing import Any

import pytest

from noisin.errors import InvalidValue
from noisin.training.tuning import Trial, best, grids, search

VALUES = {"a": [0, 1, 2, 3, 4], "b": [0.0, 0.5, 1.0]}


def bowl(point: Any) -> float:
    return float((point["a"] - 3) ** 2 + (point["b"] - 0.5) ** 2)


@pytest.mark.parametrize("a", VALUES["a"])
@pytest.mark.parametrize("b", VALUES["b"])
def test_it_finds_the_lowest_point_from_anywhere(a: int, b: float) -> None:
    trials = search(bowl, {"a": a, "b": b, "other": "x"}, VALUES, 99)
    assert best(trials).settings == {"a": 3, "b": 0.5, "other": "x"}
    keys = [tuple(trial.settings.values()) for trial in trials]
    assert len({*keys}) == len(keys) < 15, "no point twice, and not all"
    assert keys[0] == (a, b, "x")


@pytest.mark.parametrize("budget", [1, 2, 5])
def test_the_budget_is_kept(budget: int) -> None:
    trials = search(bowl, {"a": 0, "b": 0.0}, VALUES, budget)
    assert len(trials) == budget
    assert best(trials).nats == min(trial.nats for trial in trials)


def test_what_is_no_number_is_the_worst() -> None:
    def diverges(point: Any) -> float:
        return math.nan if point["a"] > 1 else -point["a"]

    trials = search(diverges, {"a": 0}, {"a": [0, 1, 2, 3]}, 9)
    assert trials == [Trial({"a": 0}, 0), Trial({"a": 1}, -1), Trial({"a": 2}, math.inf)]
    assert best(trials).settings == {"a": 1}
    assert best(search(lambda _: math.nan, {"a": 0}, {"a": [0, 1]}, 9)).settings == {"a": 0}


def test_grids() -> None:
    start = {
        "temperature": 1.0,
        "cache.window": 333,
        "cache.theta": 0.6,
        "cache.lambda": 0.1,
        "dynamic.lr": 5e-5,
        "dynamic.decay": 0.2,
        "dynamic.epsilon": 2e-5,
        "dynamic.segment": 5,
        "dynamic.normalisation": "krause",
        "K": 3,
    }
    found = grids(start, 400, fixed=["cache.theta"])
    names = ["cache.lambda", "cache.window", "dynamic.lr", "dynamic.decay", "dynamic.epsilon"]
    assert [*found] == [*names, "temperature"]
    assert found["cache.window"] == [50, 100, 200, 333]
    assert all(start[name] in values and values == sorted(values) for name, values in found.items())
    assert max(found["dynamic.decay"]) < 1
    assert 0.0 in found["dynamic.decay"]
    sgd = grids({**start, "dynamic.normalisation": "sgd", "dynamic.decay": 0.0}, 400)
    assert "dynamic.epsilon" not in sgd
    assert len(sgd["dynamic.decay"]) > 1


def test_a_budget_of_nothing() -> None:
    with pytest.raises(InvalidValue, match="budget must be a whole number, 1 or more, got 0"):
        search(bowl, {"a": 0, "b": 0.0}, VALUES, 0)
