"""The search on learning curves whose optimum is known: its guard, its budget, its messages."""

from __future__ import annotations

import itertools
import json
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noisin
from noisin.errors import InvalidType, InvalidValue, NoisinError
from noisin.tuning import search
from noisin.tuning.budget import Budget
from noisin.tuning.plan import FEWEST, MOST, TuningPlan, ladder, rungs_of
from noisin.tuning.search import Tuned, TuningTrial, by_rung, promoted, tune

RESULTS = Path(__file__).parents[2] / "results" / "tune"
EPOCHS, LONG = 30, 240  # of a run, and a budget that pays for all stds at full length
Curve = Callable[[float, int], float]


def searched(curve: Curve, budget: int = LONG, **options: Any) -> Tuned:
    def train(trial: TuningTrial) -> tuple[float, int]:
        return curve(trial.std, trial.epochs), trial.epochs

    return tune(train, budget=budget, epochs=EPOCHS, **options)


def unguarded(scores: Mapping[float, float], count: int, left: int) -> list[float]:
    """Plain successive halving: the best so far go on."""
    del left
    return sorted(sorted(scores, key=lambda std: scores[std])[:count])


def curve(slowed: float, late: float, jitter: float = 0.0, seed: int = 0) -> Curve:
    """Noise slows learning by its variance, and reduces overfitting, which grows with time.

    After ``EPOCHS`` the best std is ``late``, and before it is as much smaller as the root of time.
    """
    overfit = slowed * late**4 / EPOCHS

    def score(std: float, epochs: int) -> float:
        shake = random.Random(f"{seed} {std} {epochs}").gauss(0, jitter)
        learnt = slowed * (1 + std**2) / epochs
        return learnt + overfit * (epochs / EPOCHS) / std**2 + shake

    return score


def best_of(curve: Curve, stds: Sequence[float], epochs: int) -> int:
    """The place of the lowest score."""
    return min(range(len(stds)), key=lambda i: curve(stds[i], epochs))


curves = st.builds(curve, st.floats(0.5, 2.0), st.floats(0.4, 1.2))


@given(curves)
def test_on_these_curves_the_best_std_grows_with_the_length_of_training(curve: Curve) -> None:
    """What the guard assumes, and what makes short runs favour little noise."""
    places = [best_of(curve, ladder(0.5, MOST), epochs) for epochs in rungs_of(EPOCHS)]
    assert places == sorted(places)
    assert places[0] < places[-1]


@given(st.data())
def test_the_winner_is_found_wherever_the_best_std_grows_as_assumed(data: st.DataObject) -> None:
    """Any scores with one minimum: whenever the last best std is a neighbour of the expected."""
    plan = TuningPlan.within(data.draw(st.sampled_from([64, 68, 72, 90, 120, LONG])), EPOCHS)
    assert plan is not None
    stds, counts = ladder(0.5, plan.counts[0]), plan.counts
    first = data.draw(st.integers(0, len(stds) - 1))
    above = counts[1] < 3  # the best itself goes on beside two larger ones
    start = min(first + above, len(stds) - counts[1])  # of those on the second rung
    second = data.draw(st.integers(start, start + counts[1] - 1))
    start = min(second, start + counts[1] - counts[2])
    last = data.draw(st.integers(start, start + counts[2] - 1))
    at = dict(zip(plan.rungs, (first, second, last), strict=True))
    slope = data.draw(st.floats(0.01, 10))
    found = searched(lambda std, epochs: slope * abs(stds.index(std) - at[epochs]), plan.cost)
    assert (found.std, found.score, found.plan) == (stds[last], 0.0, plan)


@given(st.integers(64, LONG), st.sampled_from(ladder(0.5, MOST)))
def test_a_best_std_that_does_not_grow_is_found_or_the_result_is_reported(
    budget: int, best: float
) -> None:
    """The leader of the first rung is dropped only where two go on, and not in silence."""
    found = searched(lambda std, epochs: abs(math.log(std / best)) + 1 / epochs, budget)
    tried = ladder(0.5, found.plan.counts[0])
    nearest = min(tried, key=lambda std: abs(math.log(std / best)))
    last = {one.std for one in found.tried if one.epochs == EPOCHS}
    if found.std != nearest:
        assert found.plan.counts[1] == 2
        assert found.at_end == "smallest"
    elif nearest == max(last):
        assert found.at_end == "largest"
    else:
        assert found.at_end == ("smallest" if nearest == min(tried) else "")


def test_the_leader_of_a_rung_is_not_lost() -> None:
    found = searched(lambda std, _: (0.9 - std) ** 2, 91)
    assert found.plan.counts == (8, 3, 2)
    assert (found.std, found.at_end) == (1.0, "")
    found = searched(lambda std, _: (0.4 - std) ** 2, 72)
    assert (found.plan.counts, found.std, found.at_end) == ((5, 2, 2), 0.63, "smallest")


def test_the_published_searches_train_the_same_stds() -> None:
    """Their scores again, rung by rung, by the rule as it is now."""
    folders = [*(RESULTS / "tuning").iterdir(), *(RESULTS / "seeds").iterdir()]
    assert len(folders) == 3
    for folder in folders:
        recorded = json.loads((folder / "tune.json").read_text(encoding="utf-8"))
        scores = {(one["std"], one["epochs"]): one["score"] for one in recorded["tried"]}
        trained: list[tuple[float, int]] = []

        def train(trial: TuningTrial, scores: Any = scores, trained: Any = trained) -> Any:
            trained.append((trial.std, trial.epochs))
            return scores[trial.std, trial.epochs], "state"

        plan, around = recorded["plan"], recorded["start"]["std"]
        found = tune(train, budget=plan["cost"], epochs=plan["rungs"][-1], around=around)
        assert trained == list(scores)
        assert (found.std, found.score) == (
            recorded["chosen"]["std"],
            recorded["chosen"]["score"],
        )
        assert found.at_end == "largest"


LATE = curve(slowed=1.0, late=0.65)


@pytest.mark.parametrize("budget", [72, 90, 120])
def test_without_the_guard_the_late_winner_is_lost(
    budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = searched(LATE, budget)
    stds = ladder(0.5, guarded.plan.counts[0])
    places = [best_of(LATE, stds, epochs) for epochs in guarded.plan.rungs]
    assert places[0] < places[1] < places[2]
    assert guarded.std == stds[places[-1]]
    monkeypatch.setattr(search, "promoted", unguarded)
    assert searched(LATE, budget).std < guarded.std


def test_with_noisy_scores_the_guard_ends_nearer_to_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mean regret at full length over 200 curves whose scores shake by a per cent or so."""

    def regret() -> float:
        law, total = random.Random(1), 0.0
        for seed in range(200):
            numbers = law.uniform(0.5, 2.0), law.uniform(0.4, 1.2)
            found = searched(curve(*numbers, jitter=0.001, seed=seed), budget=90)
            exact = curve(*numbers)
            total += exact(found.std, EPOCHS) - min(exact(s, EPOCHS) for s in ladder(0.5, MOST))
        return total / 200

    guarded = regret()
    monkeypatch.setattr(search, "promoted", unguarded)
    assert guarded < 0.5 * regret()


def test_what_has_diverged_does_not_go_on() -> None:
    assert promoted({0.4: 1.0, 0.63: math.inf, 1.0: 2.0}, 2, left=0) == [0.4, 1.0]
    assert promoted({0.4: math.inf, 0.63: math.inf}, 1, left=0) == [0.63]
    with pytest.raises(InvalidValue, match="all trials diverged"):
        searched(lambda *_: math.nan)


@given(
    st.integers(1, 60),
    st.integers(1, 900),
    st.booleans(),
    st.sampled_from([None, 20.0]),
    st.sampled_from([1.0, -1.0]),
)
@settings(max_examples=300)
def test_the_budget_is_kept_and_counted_exactly(
    epochs: int, budget: int, resumes: bool, lr: float | None, sign: float
) -> None:
    trained: dict[tuple[float, float | None], int] = {}
    total = 0

    def train(trial: TuningTrial) -> Any:
        nonlocal total
        key = trial.std, trial.lr
        assert trial.start == (trained.get(key, 0) if resumes else 0)
        assert trial.state == (("state", trial.start) if trial.start else None)
        total += trial.epochs - trial.start
        trained[key] = trial.epochs
        score = sign * (trial.lr or 1.0) - trial.epochs
        return (score, ("state", trial.epochs)) if resumes else score

    least = TuningPlan.least(epochs, resumes)
    if budget < least.cost:
        with pytest.raises(InvalidValue, match=r"least is \d+ epochs") as raised:
            tune(train, budget=budget, epochs=epochs, lr=lr)
        known = total > 0 or resumes  # whether it continues is known after the first trial
        assert not known or f"least is {least.cost} epochs" in str(raised.value)
        return
    found = tune(train, budget=budget, epochs=epochs, lr=lr)
    assert found.spent == total <= found.plan.cost <= budget
    if not found.plan.lr:
        assert total == found.plan.cost
    assert found.plan.lr <= (lr is not None)
    assert found.lr == (lr if not found.plan.lr or (sign < 0 and lr is None) else found.lr)
    assert len(set(trained)) == found.plan.counts[0] + 2 * found.plan.lr


def test_a_larger_budget_never_tries_less() -> None:
    plans = [TuningPlan.within(budget, EPOCHS) for budget in range(60, LONG + 50)]
    known = [plan.counts for plan in plans if plan is not None]
    assert known[0] == (FEWEST, 2, 2)
    assert known[-1] == (MOST, MOST, MOST)
    for fewer, more in itertools.pairwise(known):
        assert all(a <= b for a, b in zip(fewer, more, strict=True))


def test_a_better_learning_rate_is_found_beside_the_std() -> None:
    def train(trial: TuningTrial) -> tuple[float, str]:
        assert trial.lr is not None
        return LATE(trial.std, trial.epochs) + abs(math.log(trial.lr / 10)), "state"

    found = tune(train, budget=200, epochs=EPOCHS, lr=20.0)
    assert (found.lr, found.plan.lr) == (10.0, True)
    assert {one.lr for one in found.tried} == {10.0, 20.0, 40.0}
    rungs = dict(by_rung(found.tried, 40.0))
    assert set(rungs) == {found.plan.lr_rung}  # the worse one was not trained further
    assert found.lr_at_end == "lowest"
    found = tune(train, budget=70, epochs=EPOCHS, lr=20.0)
    assert (found.lr, found.lr_at_end) == (20.0, "")  # no budget for others
    assert tune(train, budget=200, epochs=EPOCHS, lr=10.0).lr_at_end == ""
    assert tune(train, budget=200, epochs=EPOCHS, lr=5.0).lr_at_end == "highest"
    assert searched(LATE).lr_at_end == ""


def test_a_time_is_turned_into_epochs_by_the_first_trial() -> None:
    assert searched(LATE, budget="1h").plan.counts == (MOST, MOST, MOST)

    def slow(trial: TuningTrial) -> float:
        time.sleep(0.002 * trial.epochs)
        return 1.0

    with pytest.raises(InvalidValue, match=r"budget of 0.02s, which is \d epochs of .* least is"):
        tune(slow, budget="0.02s", epochs=EPOCHS)


@pytest.mark.parametrize(
    ("given", "epochs", "seconds"),
    [("2h", None, 7200.0), ("1.5h", None, 5400.0), ("30m", None, 1800.0), ("90 s", None, 90.0),
     ("1epoch", 1, None), ("26epochs", 26, None), (26, 26, None)],
)  # fmt: skip
def test_budgets(given: int | str, epochs: int | None, seconds: float | None) -> None:
    assert Budget.read(given) == Budget(epochs, seconds)


@pytest.mark.parametrize("given", ["", "2", "h", "0h", "-1h", "2d", "1e9h", "nan h", "1.5epochs",
                                   "２h", 0, -3, 2.5, None, True])  # fmt: skip
def test_what_is_not_a_budget_is_refused(given: Any) -> None:
    with pytest.raises(NoisinError, match="budget"):
        tune(lambda _: 1.0, budget=given, epochs=EPOCHS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number"),
        ({"around": -1.0}, "around must be a finite number above 0"),
        ({"around": 1e9}, "around must lie in"),
        ({"lr": 0.0}, "lr must be a finite number above 0"),
        ({"budget": 5}, "least is 64 epochs"),
    ],
)
def test_bad_arguments_get_one_message(options: dict[str, Any], message: str) -> None:
    def never(trial: TuningTrial) -> float:
        raise AssertionError(trial)

    with pytest.raises(NoisinError, match=message):
        tune(never, **({"budget": LONG, "epochs": EPOCHS} | options))


@pytest.mark.parametrize("found", ["low", None, (), (1.0,), (1.0, None, 3), [1.0, None]])
def test_what_is_not_a_score_is_refused(found: object) -> None:
    with pytest.raises(InvalidType, match=r"must return a score, or \(score, state\), got "):
        tune(cast("Any", lambda _: found), budget=LONG, epochs=EPOCHS)


def test_what_is_not_a_function_is_refused() -> None:
    with pytest.raises(InvalidType, match="must be a function"):
        tune(3, budget=LONG, epochs=EPOCHS)


def test_it_is_exported() -> None:
    assert noisin.tune is tune
