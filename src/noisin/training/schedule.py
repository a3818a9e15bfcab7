"""Decisions based on the scores on valid: learning rate, best epoch, averaging, patience.

The state consists of plain numbers, so that a checkpoint contains all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, Self, get_args

from noisin.noise.schedules import Ramp
from noisin.training.config import ScheduleConfig, TrainConfig

Weights = Literal["raw", "averaged"]
WEIGHTS: tuple[Weights, ...] = get_args(Weights)


class BestEpoch(NamedTuple):
    """The epoch of the lowest score on valid, counted from 1."""

    nats: float
    epoch: int


@dataclass
class Schedule:
    """The decisions so far.

    Attributes:
        lr: the learning rate of the next epoch.
        averaging: whether the weights are being averaged.
        history: the deciding score on valid of every epoch, in nats per target: that of the raw
            weights or, where :func:`average_decides`, that of the average if there is one.
        bests: the best epoch of the raw weights, and that of their average if there is one.
        waited: epochs without a new minimum since the last one, or since lr was divided.
    """

    lr: float
    averaging: bool
    history: list[float] = field(default_factory=list)
    bests: dict[Weights, BestEpoch] = field(default_factory=dict)
    waited: int = 0

    @classmethod
    def start(cls, train: TrainConfig) -> Self:
        """The schedule before the first epoch."""
        return cls(lr=train.lr, averaging=train.averaging in ("from_start", "two_tailed"))

    @property
    def best_weights(self) -> Weights:
        """The weights that count: those with the lower score on valid, each at its best epoch.

        This is the only place that decides it; ties go to the raw weights.
        """
        return min(self.bests, key=lambda weights: self.bests[weights].nats, default="raw")

    def judge(self, train: TrainConfig, raw: float, averaged: float | None) -> list[Weights]:
        """Process the scores on valid after an epoch; return the weights that have a new best.

        After ``lr_patience`` epochs in a row whose deciding score is not a new minimum, the
        learning rate is divided by ``lr_decay``; with ``lr_decay_after``, after every epoch from
        that one on. With ``nt``, averaging starts when the score exceeds the minimum of all but
        the last ``nt_window`` epochs.

        >>> train = TrainConfig(averaging="nt", nt_window=2)
        >>> schedule = Schedule.start(train)
        >>> [schedule.judge(train, nats, None) for nats in (9.0, 8.0, 8.5, 8.2)]
        [['raw'], ['raw'], [], []]
        >>> schedule.lr, schedule.averaging      # 8.2 is below 9, the minimum two epochs before
        (20.833333333333336, False)
        >>> schedule.judge(train, 8.3, None), schedule.averaging  # 8.3 is above 8
        ([], True)
        >>> schedule.judge(train, 8.4, 7.9), schedule.best_weights
        (['averaged'], 'averaged')
        """
        values: dict[Weights, float | None] = {"raw": raw, "averaged": averaged}
        improved = [weights for weights, value in values.items() if self._note(weights, value)]
        decides = averaged if average_decides(train) and averaged is not None else raw
        if self._is_time_to_divide(train, decides):
            self.lr /= train.lr_decay
        self.history.append(decides)
        if train.averaging == "nt" and self._is_not_monotone(train.nt_window):
            self.averaging = True
        return improved

    def _is_time_to_divide(self, train: TrainConfig, decides: float) -> bool:
        """Whether to divide the learning rate after an epoch with this score."""
        if train.lr_decay_after is not None:
            return len(self.history) + 1 >= train.lr_decay_after
        self.waited += 1
        if decides < min(self.history, default=math.inf):  # false for NaN
            self.waited = 0
        if self.waited < train.lr_patience:
            return False
        self.waited = 0
        return True

    def _is_not_monotone(self, window: int) -> bool:
        """Whether the last score exceeds the minimum of all but the ``window`` before it."""
        *before, last = self.history
        earlier = before[:-window]
        return bool(earlier) and last > min(earlier)

    def _note(self, weights: Weights, value: float | None) -> bool:
        """Store a score if it is the lowest of these weights so far; return whether it is."""
        lowest = self.bests[weights].nats if weights in self.bests else math.inf
        if value is None or not value < lowest:  # true for NaN
            return False
        self.bests[weights] = BestEpoch(value, len(self.history) + 1)
        return True

    def out_of_patience(self, train: TrainConfig) -> bool:
        """Whether neither the raw weights nor their average have improved within the patience.

        With ``nt_patience``: whether the deciding score is worse than the minimum of all but the
        last so many epochs, at which the fine-tuning of AWD-LSTM stops.
        """
        latest = max((best.epoch for best in self.bests.values()), default=0)
        if train.patience is not None and len(self.history) - latest >= train.patience:
            return True
        window = train.nt_patience
        return window is not None and bool(self.history) and self._is_not_monotone(window)

    def state_dict(self) -> dict[str, Any]:
        """The state as plain types."""
        return asdict(self) | {"bests": {weights: list(b) for weights, b in self.bests.items()}}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The schedule from what :meth:`state_dict` returned."""
        state = dict(state)
        bests = {weights: BestEpoch(*best) for weights, best in state.pop("bests").items()}
        return cls(**state, bests=bests)


def average_decides(train: TrainConfig) -> bool:
    """Whether the score of the average, once there is one, decides in place of the raw weights'.

    It does not where averaging is from the first step, as the paper's: the mean of all iterates is
    worse at first. In fine-tuning, all of them are near the minimum.
    """
    return train.averaging in ("nt", "two_tailed") or train.start is not None


def in_nats(state: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the state dict of an older version from perplexities to nats.

    Noisin 0.1 stored the best epoch of one kind of weights only.
    """
    state = dict(state)
    if "best_epoch" in state:
        old = state.pop("best"), state.pop("best_epoch")
        weights = state.pop("best_weights")
        state["bests"] = {weights: old} if old[1] else {}
    bests = {kind: [math.log(value), epoch] for kind, (value, epoch) in state["bests"].items()}
    return state | {"bests": bests, "history": [math.log(value) for value in state["history"]]}


def noise_share(schedule: ScheduleConfig, epoch: int) -> float:
    """The share of the noise's standard deviation in an epoch, counted from 0.

    >>> warm_up = ScheduleConfig(kind="linear", epochs=4)
    >>> [noise_share(warm_up, epoch) for epoch in range(6)]
    [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    """
    return Ramp(schedule.kind, schedule.epochs, schedule.start, schedule.end)(epoch)
