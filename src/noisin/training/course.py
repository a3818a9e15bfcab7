"""What the validation perplexities decide: step size, the best epoch, averaging, patience.

Plain arithmetic on plain numbers, so that a checkpoint holds all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from noisin.training.config import ScheduleConfig, TrainConfig


@dataclass
class Course:
    """The decisions so far.

    Attributes:
        lr: the step size of the next epoch.
        best: the lowest validation perplexity.
        best_epoch: the epoch that had it, counted from 1.
        best_weights: whether those were the ``"raw"`` weights or the ``"averaged"`` ones.
        averaging: whether the weights are being averaged.
        history: the validation perplexity that counted, of every epoch.
    """

    lr: float
    averaging: bool
    best: float = math.inf
    best_epoch: int = 0
    best_weights: str = "raw"
    history: list[float] = field(default_factory=list)

    @classmethod
    def start(cls, train: TrainConfig) -> Self:
        """Before the first epoch."""
        return cls(lr=train.lr, averaging=train.averaging == "from_start")

    def judge(self, train: TrainConfig, raw: float, averaged: float | None) -> bool:
        """Take in the validation perplexities after an epoch; return whether it is the best so far.

        Those of the raw weights count; under ``nt``, once the average has begun, those of the
        average. Is it not below the best so far, the step size is divided by ``lr_decay``. Under
        ``nt`` averaging begins when it is above the lowest of all but the last ``nt_window``
        epochs.

        >>> train = TrainConfig(averaging="nt", nt_window=2)
        >>> course = Course.start(train)
        >>> [course.judge(train, ppl, None) for ppl in (90.0, 80.0, 85.0, 82.0)]
        [True, True, False, False]
        >>> course.lr, course.averaging          # 82 is below 90, all there was two epochs before
        (20.833333333333336, False)
        >>> course.judge(train, 83.0, None), course.averaging  # 83 is above 80
        (False, True)
        """
        value, weights = raw, "raw"
        if train.averaging == "nt" and averaged is not None:
            value, weights = averaged, "averaged"
        improved = value < self.best
        if improved:
            self.best, self.best_epoch, self.best_weights = value, len(self.history) + 1, weights
        else:
            self.lr /= train.lr_decay
        earlier = self.history[: -train.nt_window]
        if train.averaging == "nt" and earlier and value > min(earlier):
            self.averaging = True
        self.history.append(value)
        return improved

    def out_of_patience(self, train: TrainConfig) -> bool:
        """Whether the best epoch lies too far back."""
        return train.patience is not None and len(self.history) - self.best_epoch >= train.patience

    def state_dict(self) -> dict[str, Any]:
        """As plain types."""
        return asdict(self)

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """Back from plain types."""
        return cls(**state)


def noise_share(schedule: ScheduleConfig, epoch: int) -> float:
    """The share of the noise's standard deviation in an epoch, counted from 0.

    >>> warm_up = ScheduleConfig(kind="linear", epochs=4)
    >>> [noise_share(warm_up, epoch) for epoch in range(6)]
    [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    """
    if schedule.kind == "constant":
        return 1.0
    way = min(1.0, epoch / schedule.epochs)
    if schedule.kind == "cosine":
        way = (1 - math.cos(math.pi * way)) / 2
    return schedule.start + (schedule.end - schedule.start) * way
