"""Asynchronous successive halving, for trials that may be retried.

Optuna's own pruner keeps the rungs of a trial that failed, so a run that was killed and retried
would compete with itself. This one considers only what was reported.
"""

from __future__ import annotations

from optuna import Study
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState

from noisin.experiments.sweep.definition import Pruning


class Halving(BasePruner):
    """Ends a trial that is not among the best ``1 / factor`` of those that reached the same rung.

    The rungs are ``min_epochs``, ``min_epochs * factor``, ``min_epochs * factor**2``, ... epochs.
    No trial waits for others: the first to arrive continues, and so does the best so far.
    """

    def __init__(self, pruning: Pruning) -> None:
        self.pruning = pruning

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether to end the trial, which has reported its newest epoch."""
        epoch = trial.last_step
        if epoch is None or not is_rung(epoch, self.pruning):
            return False
        mine = trial.intermediate_values[epoch]
        rivals = [
            other.intermediate_values[epoch]
            for other in study.get_trials(deepcopy=False)
            if other.number != trial.number
            and other.state is not TrialState.FAIL
            and epoch in other.intermediate_values
        ]
        return not is_kept(mine, rivals, self.pruning.factor)


def is_rung(epoch: int, pruning: Pruning) -> bool:
    """Whether runs are compared after this epoch.

    >>> [epoch for epoch in range(1, 30) if is_rung(epoch, Pruning(min_epochs=2, factor=3))]
    [2, 6, 18]
    """
    rung = pruning.min_epochs
    while rung < epoch:
        rung *= pruning.factor
    return rung == epoch


def is_kept(mine: float, rivals: list[float], factor: int) -> bool:
    """Whether a value is among the lowest ``1 / factor`` of all, or the lowest.

    >>> [is_kept(value, [1.0, 2.0, 3.0, 4.0, 5.0], 3) for value in (0.5, 1.5, 2.5)]
    [True, True, False]
    """
    kept = max(1, (len(rivals) + 1) // factor)
    return sum(rival < mine for rival in rivals) < kept
