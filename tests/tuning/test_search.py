"""The search on learning curves whose optimum is known: its guard, its budget, its messages."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noisin
from noisin.errors import InvalidType, InvalidValue, NoisinError
from noisin.tuning import search
from noisin.tuning.budget import Budget
from noisin.tuning.plan import FEWEST, MOST, TuningPlan, ladder, rungs_of
from noisin.tuning.search import Tuned, TuningTrial, by_rung, promoted, tune

EPOCHS, LONG = 30, 400  # of a run, and a budget that pays for 12 stds
Curve = Callable[[float, int], float]


def best_of(curve: Curve, stds: list[float], epochs: int) -> int:
    """The place of the lowest score, the last of equal ones."""
    return min(range(len(stds)), key=lambda i: (curve(stds[i], epochs), -i))


def searched(curve: Curve, budget: int = LONG, **options: Any) -> Tuned:
    def train(trial: TuningTrial) -> tuple[float, int]:
        return curve(trial.std, trial.epochs), trial.epochs

    return tune(train, budget=budget, epochs=EPOCHS, **options)


def unguarded(scores: Mapping[float, float], count: int) -> list[float]:
    """Plain successive halving: the best so far go on."""
    return sorted(sorted(scores, key=lambda std: scores[std])[:count])


def curve(slowed: float, overfit: float, jitter: float = 0.0, seed: int = 0) -> Curve:
    """Noise slows learning by ``1 + std²``; without it, overfitting sets in and grows."""

    def score(std: float, epochs: int) -> float:
        shake = random.Random(f"{seed} {std} {epochs}").gauss(0, jitter)
        learnt = slowed * (1 + std**2) / epochs
        return learnt + overfit * (epochs / EPOCHS) ** 2 / (1 + 4 * std**2) + shake

    return score


curves = st.builds(curve, st.floats(0.5, 2.0), st.floats(0.5, 3.0))


@given(curves)
def test_on_these_curves_the_best_std_grows_with_the_length_of_training(curve: Curve) -> None:
    """What the guard assumes, and what makes short runs favour little noise."""
    stds = ladder(0.5, MOST)
    places = [best_of(curve, stds, epochs) for epochs in rungs_of(EPOCHS)]
    assert places == sorted(places)
    assert places[0] < places[-1]


@given(st.data())
def test_the_winner_is_found_wherever_the_best_std_does_not_fall(data: st.DataObject) -> None:
    """For any scores: if the best std moves up a rung by less than the number that is kept."""
    plan = TuningPlan.within(data.draw(st.integers(72, 400)), EPOCHS)
    assert plan is not None
    stds = ladder(0.5, plan.counts[0])
    place = data.draw(st.integers(0, len(stds) - 1))
    scores = {}
    for rung, count in zip(plan.rungs, plan.counts, strict=True):
        if rung != plan.rungs[0]:
            place = min(place + data.draw(st.integers(0, count - 1)), len(stds) - 1)
        for i, std in enumerate(stds):
            worse = st.floats(1.0, 2.0, exclude_min=True)
            scores[std, rung] = 1.0 if i == place else data.draw(worse)
    found = searched(lambda std, epochs: scores[std, epochs], plan.cost)
    assert (found.std, found.score) == (stds[place], 1.0)
    assert found.plan == plan


LATE = curve(slowed=1.0, overfit=1.2)  # of 12 stds the 2nd, 5th and 7th are best on the rungs


def test_without_the_guard_the_late_winner_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = 100
    guarded = searched(LATE, budget)
    stds = ladder(0.5, guarded.plan.counts[0])
    places = [best_of(LATE, stds, epochs) for epochs in guarded.plan.rungs]
    assert places[0] < places[1] < places[2]
    assert guarded.std == stds[places[-1]]
    monkeypatch.setattr(search, "promoted", lambda scores, n: unguarded(scores, n))
    assert searched(LATE, budget).std < guarded.std


def test_with_noisy_scores_the_guard_ends_nearer_to_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mean regret at full length over 200 curves, whose scores shake by one per cent or so."""

    def regret() -> float:
        random_curves = random.Random(1)
        total = 0.0
        for seed in range(200):
            law = (random_curves.uniform(0.5, 2.0), random_curves.uniform(0.5, 3.0))
            found = searched(curve(*law, jitter=0.005, seed=seed), budget=100)
            clean = curve(*law)
            total += clean(found.std, EPOCHS) - min(clean(s, EPOCHS) for s in ladder(0.5, MOST))
        return total / 200

    guarded = regret()
    monkeypatch.setattr(search, "promoted", lambda scores, n: unguarded(scores, n))
    assert guarded < 0.5 * regret()


def test_what_has_diverged_does_not_go_on() -> None:
    assert promoted({0.4: 1.0, 0.63: math.inf, 1.0: 2.0}, 2) == [0.4, 1.0]
    assert promoted({0.4: math.inf, 0.63: math.inf}, 1) == [0.63]
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
        with pytest.raises(InvalidValue, match=rf"least is {least.cost} epochs"):
            tune(train, budget=budget, epochs=epochs, lr=lr)
        return
    found = tune(train, budget=budget, epochs=epochs, lr=lr)
    assert found.spent == total <= found.plan.cost <= budget
    if not found.plan.lr:
        assert total == found.plan.cost
    assert found.plan.lr <= (lr is not None)
    assert found.lr == (lr if not found.plan.lr or (sign < 0 and lr is None) else found.lr)
    assert len(set(trained)) == found.plan.counts[0] + 2 * found.plan.lr


def test_a_larger_budget_never_tries_less() -> None:
    plans = [TuningPlan.within(budget, EPOCHS) for budget in range(60, 400)]
    known = [plan.counts for plan in plans if plan is not None]
    assert known[0] == (FEWEST, 2, 2)
    assert known[-1] == (MOST, MOST, MOST)
    assert all(a <= b for old, new in zip(known, known[1:], strict=False)
               for a, b in zip(old, new, strict=True))  # fmt: skip


def test_a_better_learning_rate_is_found_beside_the_std() -> None:
    def train(trial: TuningTrial) -> tuple[float, str]:
        assert trial.lr is not None
        return LATE(trial.std, trial.epochs) + abs(math.log(trial.lr / 10)), "state"

    found = tune(train, budget=200, epochs=EPOCHS, lr=20.0)
    assert (found.lr, found.plan.lr) == (10.0, True)
    assert {one.lr for one in found.tried} == {10.0, 20.0, 40.0}
    rungs = dict(by_rung(found.tried, 40.0))
    assert set(rungs) == {found.plan.lr_rung}  # the worse one was not trained further
    assert tune(train, budget=72, epochs=EPOCHS, lr=20.0).lr == 20.0  # no budget for it


def test_a_time_is_turned_into_epochs_by_the_first_trial() -> None:
    assert searched(LATE, budget="1h").plan.counts == (MOST, MOST, MOST)  # type: ignore[arg-type]

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
        ({"budget": 5}, "least is 72 epochs"),
    ],
)
def test_bad_arguments_get_one_message(options: dict[str, Any], message: str) -> None:
    def never(trial: TuningTrial) -> float:
        raise AssertionError(trial)

    with pytest.raises(NoisinError, match=message):
        tune(never, **({"budget": LONG, "epochs": EPOCHS} | options))


def test_what_is_not_a_score_is_refused() -> None:
    with pytest.raises(InvalidType, match="must return a score"):
        tune(lambda _: "low", budget=LONG, epochs=EPOCHS)  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidType, match="must be a function"):
        tune(3, budget=LONG, epochs=EPOCHS)  # type: ignore[arg-type]


def test_it_is_exported() -> None:
    assert noisin.tune is tune
