r"""Where a search starts: at the std whose regularizer is a set fraction of the clean risk.

For a model that was briefly trained without noise, and a std,

.. math:: Reg(std) = R(std) - R(0)

is what noise adds to the loss of training. With noise on the last layer that is not fed back it is
the explicit regularizer of the paper; with ``train.objective = "penalty"`` it is its closed form;
in general it is a Monte Carlo estimate by one draw of the noise for each of some thousand targets,
for dropout too. It grows with std, so that the one where it reaches a fraction of the risk is found
by bracketing.

Initial weights would not do. There the states are small and the predictions hardly depend on them,
so no noise adds anything. As weights grow during training, so does the regularizer, and the start
depends on how long that was: it is where to begin to look, within a factor of three or so, and not
an estimate of the best std.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from noisin._util import states
from noisin.experiments.tuning.tunable import Tunable
from noisin.tasks import Task
from noisin.tasks.base import observation_of
from noisin.training.build import build_model
from noisin.training.load import read_weights
from noisin.training.objectives import build_objective
from noisin.training.record import RunRecord
from noisin.training.runtime.device import own_random_stream, use_threads
from noisin.training.state import load_weights, weights_of
from noisin.tuning.plan import PER_DECADE, rung_std

FRACTION = 0.02  # of the clean risk
TARGETS = 10_000  # of the training data, that the risk is measured on
# Exponents of the stds to try: 0.01 to 1. With more, the noise on a unit exceeds its value; a model
# that has not learnt much yet would ask for it.
SMALLEST, LARGEST = -2 * PER_DECADE, 0


@dataclass(frozen=True)
class Start:
    """Where to start.

    Attributes:
        std: the std at which the regularizer is the fraction of the risk, or the nearest tried.
        risk: the clean risk on training data, in nats per target.
    """

    std: float
    risk: float


def find_start(
    tunable: Tunable, record: RunRecord, task: Task, fraction: float = FRACTION
) -> Start:
    """The std to start from, by the newest weights of a run without noise."""
    weights = read_weights(record, "last", "raw").values

    def risk(std: float) -> float:
        config = tunable.config(std)
        with own_random_stream(torch.device("cpu")), torch.no_grad():
            torch.manual_seed(config.seed)
            model = build_model(config, observation_of(task))
            load_weights(weights_of(model), weights)
            return _risk(model.train(), task, build_objective(config.train), config.train.K)

    with use_threads(record.threads):
        clean = risk(0.0)
        return Start(bracketed(lambda std: (risk(std) - clean) / abs(clean), fraction), clean)


def bracketed(added: Callable[[float], float], wanted: float = FRACTION) -> float:
    """The std at which an increasing function has a value, between two of a logarithmic grid.

    Interpolated as a power of std, which the regularizer is for little noise.

    >>> round(bracketed(lambda std: 0.08 * std**2), 6)
    0.5
    >>> bracketed(lambda std: 0.0), bracketed(lambda std: 1.0)
    (1.0, 0.01)
    """
    below: tuple[float, float] | None = None
    for std in map(rung_std, range(SMALLEST, LARGEST + 1)):
        value = added(std)
        if not value < wanted:  # or nan
            if below is None or below[1] <= 0 or not math.isfinite(value):
                return std if below is None else below[0]
            low, at_low = below
            share = math.log(wanted / at_low) / math.log(value / at_low)
            return float(low * (std / low) ** share)
        below = std, value
    return std


def _risk(model: Any, task: Task, objective: Any, K: int) -> float:
    """The loss per target as in training, with the penalty if noise is one."""
    total, count, state = 0.0, 0, None
    for batch in _first(task):
        loss = objective(model, batch, states.detach(state) if batch.carries else None, K)
        added = loss.mean + loss.terms.get("penalty", 0.0)
        total, count, state = total + float(added) * batch.count, count + batch.count, loss.state
    return total / count


def _first(task: Task) -> Iterator[Any]:
    count = 0
    for batch in task.batches("train"):
        yield batch
        count += batch.count
        if count >= TARGETS:
            return
