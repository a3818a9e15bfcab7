"""What validation decides: the learning rate, when to average, and when to stop."""

from __future__ import annotations

from typing import Any

import pytest

from noisin.training import TrainConfig
from noisin.training.schedule import Schedule


def rates(scores: list[float], **train: Any) -> list[float]:
    """The learning rate after each epoch, of a first one of 1 that is divided by 2."""
    config = TrainConfig(lr=1.0, lr_decay=2.0, averaging="none", **train)
    schedule, found = Schedule.start(config), []
    for score in scores:
        schedule.judge(config, score, None)
        schedule = Schedule.from_state_dict(schedule.state_dict())  # as if it had been saved
        found.append(schedule.lr)
    return found


SCORES = [9.0, 8.0, 8.5, 8.4, 7.0, 7.5, 7.4, 7.3, 7.2]


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ({}, [1, 1, 0.5, 0.25, 0.25, 0.125, 1 / 16, 1 / 32, 1 / 64]),
        ({"lr_patience": 2}, [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125]),
        ({"lr_patience": 3}, [1, 1, 1, 1, 1, 1, 1, 0.5, 0.5]),
        ({"lr_patience": 9}, [1] * 9),
        ({"lr_decay_after": 1}, [2.0**-k for k in range(1, 10)]),
        ({"lr_decay_after": 7}, [1, 1, 1, 1, 1, 1, 0.5, 0.25, 0.125]),
    ],
)
def test_when_the_rate_is_divided(train: dict[str, Any], expected: list[float]) -> None:
    """After ``lr_patience`` epochs without a new minimum, or after every epoch from some one on."""
    assert rates(SCORES, **train) == expected


def test_the_rates_of_gal_and_of_highway_networks() -> None:
    """Divided by 1.15 after epoch 10: the first ten epochs have the initial rate."""
    config = TrainConfig(lr=1.0, lr_decay=1.15, lr_decay_after=10, averaging="none")
    schedule, used = Schedule.start(config), []
    for epoch in range(13):
        used.append(schedule.lr)
        schedule.judge(config, -float(epoch), None)
    assert used == pytest.approx([1.0] * 10 + [1.15**-1, 1.15**-2, 1.15**-3])


def awd_trigger(scores: list[float], n: int) -> int | None:
    """The epoch after which AWD-LSTM switches to averaging: ``main.py`` in words."""
    best: list[float] = []
    for epoch, score in enumerate(scores, 1):
        if len(best) > n and score > min(best[:-n]):
            return epoch
        best.append(score)
    return None


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_the_trigger_and_the_stop_are_those_of_awd(n: int) -> None:
    """The raw weights decide before averaging starts; in fine-tuning, their average does."""
    config = TrainConfig(averaging="nt", nt_window=n)
    schedule, found = Schedule.start(config), None
    for epoch, score in enumerate(SCORES, 1):
        schedule.judge(config, score, None)
        if schedule.averaging and found is None:
            found = epoch
    assert found == awd_trigger(SCORES, n)

    tuned = TrainConfig(averaging="from_start", start="runs/base", nt_patience=n)
    schedule, found = Schedule.start(tuned), None
    for epoch, score in enumerate(SCORES, 1):
        schedule.judge(tuned, 5.0 - epoch, score)
        if schedule.out_of_patience(tuned) and found is None:
            found = epoch
    assert found == awd_trigger(SCORES, n)


def test_a_limit_does_not_change_the_schedule() -> None:
    """A run may be continued with another one."""
    for limits in ({"nt_patience": 1}, {"patience": 1}):
        assert rates(SCORES, **limits) == rates(SCORES)
