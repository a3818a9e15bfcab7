"""What a search trains: how many stds, for how long, and which."""

from __future__ import annotations

import math
from dataclasses import dataclass

FACTOR = 3  # between the lengths of two rungs, and the share that is kept
RUNGS = 3  # a ninth, a third and all of the epochs
PER_DECADE = 5  # stds: 0.1, 0.16, 0.25, 0.4, 0.63, 1, ...
FEWEST, MOST = 3, 8  # stds on the first rung
BELOW = 2  # the most that are smaller than the one next to the start: less noise would do nothing
FINALISTS = 2  # the least number of stds on all later rungs: the best and the next larger one
STDS_BEFORE_LR = 5  # the learning rate is tried if the budget also allows this many stds
LRS = (0.5, 2.0)  # factors


@dataclass(frozen=True)
class TuningPlan:
    """How many stds are trained to which epoch.

    Attributes:
        rungs: the epochs at which stds are compared; the last is the whole length.
        counts: the number of stds on each rung.
        lr: whether the learning rate is tried afterwards.
        resumes: whether a trial continues where it stopped, or starts again.

    >>> plan = TuningPlan.within(26, epochs=11)
    >>> plan.rungs, plan.counts, plan.cost
    ((2, 4, 11), (4, 2, 2), 26)
    """

    rungs: tuple[int, ...]
    counts: tuple[int, ...]
    lr: bool = False
    resumes: bool = True

    @classmethod
    def within(
        cls, budget: int, epochs: int, *, lr: bool = False, resumes: bool = True
    ) -> TuningPlan | None:
        """The plan with the most stds that costs at most ``budget`` epochs; None if there is none.

        From the least budget on, up to one that pays for all stds at full length.
        """
        rungs = rungs_of(epochs)
        plans = [
            cls(rungs, _counts(n, len(rungs)), with_lr, resumes)
            for n in range(FEWEST, MOST * FACTOR ** (len(rungs) - 1) + 1)
            for with_lr in ((False, True) if lr and n >= STDS_BEFORE_LR else (False,))
        ]
        affordable = [plan for plan in plans if plan.cost <= budget]
        return max(affordable, key=lambda plan: (plan.lr, plan.cost), default=None)

    @classmethod
    def least(cls, epochs: int, resumes: bool = True) -> TuningPlan:
        """The cheapest plan."""
        rungs = rungs_of(epochs)
        return cls(rungs, _counts(FEWEST, len(rungs)), resumes=resumes)

    @property
    def cost(self) -> int:
        """The largest number of epochs that are trained."""
        steps = [self.step(k) for k in range(len(self.rungs))]
        total = sum(count * step for count, step in zip(self.counts, steps, strict=True))
        return total + (self.lr_cost if self.lr else 0)

    def step(self, k: int) -> int:
        """The number of epochs that a trial is trained for on a rung."""
        return self.rungs[k] - (self.rungs[k - 1] if k and self.resumes else 0)

    @property
    def lr_rung(self) -> int:
        """The epoch at which other learning rates are compared: the last but one."""
        return self.rungs[-2] if len(self.rungs) > 1 else self.rungs[-1]

    @property
    def lr_cost(self) -> int:
        """Of both other learning rates, and of the better one at full length."""
        last = self.step(len(self.rungs) - 1) if len(self.rungs) > 1 else 0
        return len(LRS) * self.lr_rung + last


def rungs_of(epochs: int) -> tuple[int, ...]:
    """The epochs at which trials are compared: a ninth, a third and all of them, rounded up.

    >>> rungs_of(200), rungs_of(11), rungs_of(2), rungs_of(1)
    ((23, 67, 200), (2, 4, 11), (1, 2), (1,))
    """
    parts = (math.ceil(epochs / FACTOR**k) for k in reversed(range(RUNGS)))
    return tuple(dict.fromkeys(parts))


def _counts(n: int, rungs: int) -> tuple[int, ...]:
    """A third of the stds of a rung go to the next: n, n/3, n/9, within bounds."""
    wanted = (math.ceil(n / FACTOR**k) for k in range(rungs))
    return tuple(
        min(MOST, max(FINALISTS if k else FEWEST, count)) for k, count in enumerate(wanted)
    )


def ladder(around: float, count: int) -> list[float]:
    """Stds of a logarithmic grid, those next to ``around`` and others on both sides of them.

    The grid is the same for every start, so that trials of another budget are not repeated.

    >>> ladder(0.5, 3), ladder(0.5, 8), ladder(0.63, 1)
    ([0.25, 0.4, 0.63], [0.16, 0.25, 0.4, 0.63, 1.0, 1.6, 2.5, 4.0], [0.63])
    """
    below = math.floor(PER_DECADE * math.log10(around) + 0.1)  # 0.63 is a member: 0.631
    first = below - min(BELOW, (count - 1) // 2)
    return [rung_std(k) for k in range(first, first + count)]


def rung_std(k: int) -> float:
    """``10^(k/5)`` to two digits."""
    return float(f"{10 ** (k / PER_DECADE):.1e}")
