"""The search: trials, rung by rung."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from noisin._util import arguments
from noisin.errors import InvalidType, InvalidValue
from noisin.tuning.budget import Budget, require_enough
from noisin.tuning.plan import LRS, TuningPlan, ladder, rungs_of

LOWEST, HIGHEST = 1e-3, 1e3  # where a search may start


@dataclass(frozen=True)
class TuningTrial:
    """What the function that trains is asked for.

    Attributes:
        std: the standard deviation of the noise.
        lr: the learning rate; None unless :func:`tune` was given one.
        epochs: the number of epochs to have been trained in the end.
        start: the number that ``state`` has been trained for.
        state: what was returned for this std and lr before; None at first.
    """

    std: float
    lr: float | None
    epochs: int
    start: int = 0
    state: Any = None


@dataclass(frozen=True)
class Tried:
    """The score of a std after some epochs."""

    std: float
    lr: float | None
    epochs: int
    score: float


@dataclass(frozen=True)
class Tuned:
    """What a search has found.

    Attributes:
        std: the best std.
        lr: the learning rate beside it; None unless one was given.
        score: their score at full length.
        tried: all scores, in the order in which they were measured.
        plan: which stds were to be trained for how long.
        spent: the number of epochs that were trained.
    """

    std: float
    lr: float | None
    score: float
    tried: tuple[Tried, ...]
    plan: TuningPlan
    spent: int

    @property
    def at_end(self) -> str:
        """``"smallest"`` or ``"largest"`` if the best may lie beyond the stds at full length.

        The best std is then that of all that were trained to the full length. A smaller one that
        was worse on a shorter rung would be so at the end, because short runs favour little noise,
        so that the smallest is reported only if there is none, or one that was better.
        """
        rungs = dict(by_rung(self.tried, self.tried[0].lr))
        last = rungs[max(rungs)]
        if len(last) > 1 and self.std == max(last):
            return "largest"
        smaller = {std: scores for scores in rungs.values() for std in scores if std < self.std}
        worse = [scores[std] > scores[self.std] for std, scores in smaller.items()]
        return "smallest" if self.std == min(last) and not (worse and all(worse)) else ""

    @property
    def lr_at_end(self) -> str:
        """``"lowest"`` or ``"highest"`` if the best learning rate is that of all tried."""
        lrs = [one.lr for one in self.tried if one.lr is not None]
        if self.lr is None or len({*lrs}) == 1:
            return ""
        return {min(lrs): "lowest", max(lrs): "highest"}.get(self.lr, "")


Train = Callable[[TuningTrial], float | tuple[float, Any]]


def tune(
    train: Train,
    *,
    budget: int | str,
    epochs: int,
    around: float = 0.5,
    lr: float | None = None,
) -> Tuned:
    """Find a good std for a training loop: the one with the lowest score after ``epochs``.

    Args:
        train: is called with a :class:`TuningTrial` and returns the score on validation data, lower
            is better, or the score and a state to continue from. A trial without a state is trained
            from the beginning each time, and its epochs are counted so.
        budget: the number of epochs of all trials together, or a time, such as ``"2h"``, ``"30m"``
            or ``"90s"``; the first trial then measures how long an epoch takes.
        epochs: the full length of training.
        around: the std in the middle of those that are tried.
        lr: the learning rate. If the budget allows, its half and its double are tried as well.

    >>> def train(trial):  # with more noise, training is slower and ends lower, up to a point
    ...     return trial.std**2 / trial.epochs + (0.9 - trial.std) ** 2, "state"
    >>> tuned = tune(train, budget=75, epochs=30)
    >>> tuned.std, tuned.plan.rungs, tuned.plan.counts, tuned.spent
    (1.0, (4, 10, 30), (5, 2, 2), 72)
    """
    if not callable(train) or isinstance(train, type) or not arguments.takes(train, 1):
        raise InvalidType(f"tune: train must be a function of a trial, got {train!r:.60}.")
    arguments.whole("tune: epochs", epochs)
    arguments.finite("tune: around", around, above=0)
    if not LOWEST <= around <= HIGHEST:
        raise InvalidValue(f"tune: around must lie in [{LOWEST:g}, {HIGHEST:g}], got {around:g}.")
    if lr is not None:
        arguments.finite("tune: lr", lr, above=0)
    allowed = Budget.read(budget)
    if allowed.epochs is not None:
        require_enough(allowed.epochs, TuningPlan.least(epochs), str(budget))
    search = _Search(train, lr)
    search.reach(ladder(around, 1)[0], lr, rungs_of(epochs)[0])
    limit = allowed.in_epochs(search.seconds / search.spent)
    plan = TuningPlan.within(limit, epochs, lr=lr is not None, resumes=search.resumes)
    if plan is None:
        seconds = None if allowed.epochs is not None else search.seconds / search.spent
        require_enough(limit, TuningPlan.least(epochs, search.resumes), str(budget), seconds)
    assert plan is not None
    return search.run(plan, ladder(around, plan.counts[0]))


@dataclass
class _Search:
    """The trials of a search: their scores, their states, and what they cost."""

    train: Train
    lr: float | None
    scores: dict[tuple[float, float | None, int], float] = field(default_factory=dict)
    states: dict[tuple[float, float | None], tuple[int, Any]] = field(default_factory=dict)
    spent: int = 0
    seconds: float = 0.0
    resumes: bool = True

    def run(self, plan: TuningPlan, stds: list[float]) -> Tuned:
        """Halve the stds rung by rung, and then try other learning rates."""
        reached = {std: self.reach(std, self.lr, plan.rungs[0]) for std in stds}
        for k, rung in enumerate(plan.rungs[1:], 1):
            left = len(plan.rungs) - 1 - k
            kept = promoted(reached, plan.counts[k], left)
            reached = {std: self.reach(std, self.lr, rung) for std in kept}
        best = promoted(reached, 1, 0)[0]
        score, lr = reached[best], self.lr
        if plan.lr and (other := self._other_lr(best, plan)) is not None and other[0] < score:
            score, lr = other
        if math.isinf(score):
            raise InvalidValue(
                "tune: no score is finite at the full length, so all trials diverged. Use a lower "
                "learning rate, or a smaller std to start from."
            )
        tried = tuple(Tried(*key, score) for key, score in self.scores.items())
        return Tuned(best, lr, score, tried, plan, self.spent)

    def reach(self, std: float, lr: float | None, epochs: int) -> float:
        """The score of a std after so many epochs, which are trained if they have not been."""
        if (std, lr, epochs) not in self.scores:
            start, state = self.states.get((std, lr), (0, None))
            began = time.monotonic()
            found = self.train(TuningTrial(std, lr, epochs, start, state))
            self.seconds += time.monotonic() - began
            self.spent += epochs - start
            pair = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
            score, state = pair
            self.resumes = self.resumes and state is not None
            self.states[std, lr] = (0, None) if state is None else (epochs, state)
            self.scores[std, lr, epochs] = _number(score)
        return self.scores[std, lr, epochs]

    def _other_lr(self, std: float, plan: TuningPlan) -> tuple[float, float] | None:
        """A learning rate that is better at the last rung but one, with its score at the last."""
        assert self.lr is not None
        others = {f * self.lr: self.reach(std, f * self.lr, plan.lr_rung) for f in LRS}
        best = min(others, key=lambda lr: others[lr])
        if others[best] >= self.scores[std, self.lr, plan.lr_rung]:
            return None
        return self.reach(std, best, plan.rungs[-1]), best


def promoted(scores: Mapping[float, float], count: int, left: int) -> list[float]:
    """The stds that go on: the best and the next larger ones, or neighbours above the best.

    They reach up to the std that is expected to be the best at the end, ``left + 1`` steps above
    the best, and include the best if so many go on. Where fewer do, the least of them is up to
    ``left`` steps above the best. At the ends of the stds they are the nearest ones. What has
    diverged does not go on unless all have. Of equal scores the one with more noise is the better:
    it has more to gain.

    Args:
        scores: of the stds on a rung.
        count: how many go on.
        left: the number of rungs after the next, on each of which the best std grows by a step.

    >>> promoted({0.25: 4.0, 0.4: 4.5, 0.63: 5.0, 1.0: 6.0}, 2, left=1)
    [0.4, 0.63]
    >>> promoted({0.25: 4.0, 0.4: 4.5, 0.63: 5.0, 1.0: 6.0}, 3, left=1)
    [0.25, 0.4, 0.63]
    >>> promoted({0.25: 5.0, 0.4: 4.0, 0.63: 4.5, 1.0: 6.0}, 2, left=0)
    [0.4, 0.63]
    >>> promoted({0.25: 5.0, 0.4: 4.0, 0.63: 4.5, 1.0: 3.0}, 2, left=1)
    [0.63, 1.0]
    """
    stds = sorted(std for std in scores if math.isfinite(scores[std])) or sorted(scores)
    best = min(stds, key=lambda std: (scores[std], -std))
    above = min(left, max(0, left + 2 - count))
    start = max(0, min(stds.index(best) + above, len(stds) - count))
    return stds[start : start + count]


def _number(score: Any) -> float:
    """A score as a float; nan is as bad as infinity."""
    try:
        value = float(score)
    except (TypeError, ValueError):
        raise InvalidType(
            f"tune: train must return a score, or (score, state), got {score!r:.60}."
        ) from None
    return math.inf if math.isnan(value) else value


def by_rung(tried: tuple[Tried, ...], lr: float | None) -> Iterator[tuple[int, dict[float, float]]]:
    """The epochs of each rung, with the scores of the stds that were trained at this lr."""
    for epochs in sorted({one.epochs for one in tried}):
        found = {one.std: one.score for one in tried if (one.epochs, one.lr) == (epochs, lr)}
        if found:
            yield epochs, dict(sorted(found.items()))
