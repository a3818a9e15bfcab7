"""Series: predict the values of the next step from the past and from what is known in advance.

The input of a step is the target of the step before and the covariates of the step itself. Counts
are read as scaled logarithms; real values are standardised by the mean and standard deviation of
train, as inputs and as targets. The score is ``-log p`` of a step, summed over its targets; that of
real values is of the standardised ones.

With ``changes``, the model predicts ``x_t - x_{t-1}`` and also reads the change before. Given the
past, the density of the change is that of the value, so scores with and without it are comparable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from noisin._util import arguments
from noisin.data.corpus import SPLITS
from noisin.data.magnitude import check_scale
from noisin.data.series import REAL, Scaling, SeriesSet, SeriesTable, Values
from noisin.tasks.base import Observation
from noisin.tasks.sequences import Sequences, Steps
from noisin.tasks.unit import NATS_PER_STEP

if TYPE_CHECKING:
    from noisin.training.config import RunConfig


class Series(Sequences):
    """The sequences of a data set, those of train in parts of ``bptt`` steps.

    Args:
        data: such as ``noisin.data.hourly.load("bikes")``.
        batch_size, eval_batch_size: sequences in a batch.
        bptt: a longer sequence is cut for training; each part starts from a zero state.
        clean_steps: how much of the training data to score without noise after every epoch.
        seed: the seed of the order of the parts, which depends only on seed and epoch.
    """

    unit = NATS_PER_STEP

    def __init__(
        self,
        data: SeriesSet,
        *,
        batch_size: int = 32,
        eval_batch_size: int = 10,
        bptt: int = 168,
        clean_steps: int = 100_000,
        seed: int = 1111,
    ) -> None:
        advice = "Load one: noisin.data.columns.load('bikes')."
        arguments.instance("Series: data", data, SeriesSet, advice)
        check_scale(data)
        self.data, self.name, self.sha256 = data, data.name, data.sha256
        targets = [table.target for table in data.train]
        real, counts = data.likelihood in REAL, data.likelihood == "poisson"
        self.read = (
            Scaling.of(targets, logarithm=counts)
            if real or counts
            else Scaling.none(len(data.targets))
        )
        self.changes = data.changes and real
        self._counts = not real
        self.known = Scaling.of([table.covariates for table in data.train], binary=True)
        super().__init__(
            {split: [self.steps(table) for table in getattr(data, split)] for split in SPLITS},
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            longest=bptt,
            clean_steps=clean_steps,
            seed=seed,
        )
        self.observation = Observation(
            data.likelihood,
            len(data.targets),
            bias=_bias(data.likelihood, np.concatenate(targets)),
            inputs=(1 + self.changes) * len(data.targets) + len(data.covariates),
        )

    @classmethod
    def from_config(cls, config: RunConfig) -> Self:
        """The task of a config."""
        from noisin.data.columns import load

        source, train = config.data, config.train
        found = load(source.name, source.folder, source.described_columns)
        return cls(
            found.with_likelihood(source.likelihood),
            batch_size=train.batch_size,
            eval_batch_size=train.eval_batch_size,
            bptt=train.bptt,
            clean_steps=train.clean_tokens,
            seed=config.seed,
        )

    def steps(self, table: SeriesTable) -> Steps:
        """The inputs and targets of a table; its first row is predicted from zeros."""
        levels = self.read(table.target)
        before = np.concatenate([np.zeros_like(levels[:1]), levels[:-1]])
        earlier = np.concatenate([np.zeros_like(levels[:1]), before[:-1]])
        x = self.inputs(before, earlier, table.covariates)
        target = table.target if self._counts else levels - before if self.changes else levels
        return Steps(x, target.astype(np.float32), table.scored)

    def inputs(self, level: Values, before: Values, covariates: Values) -> NDArray[np.float32]:
        """The inputs ``(N, F)`` of steps, given the levels of the last step and the one before it.

        A level is a value as the network reads it, ``(N, O)``.
        """
        known = self.known(covariates)
        parts = [level, *([level - before] if self.changes else []), known]
        return np.concatenate(parts, 1).astype(np.float32)

    def after(self, drawn: Values, before: Values) -> tuple[Values, Values]:
        """The levels and the values of targets that were drawn, given the levels before them.

        A count remains the whole number that it is: it would not, as the value of its level.
        """
        if self._counts:
            return np.asarray(self.read(drawn)), drawn
        level = before + drawn if self.changes else drawn
        return level, np.asarray(self.read.undo(level))


def _bias(likelihood: str, targets: Values) -> list[float]:
    """Natural parameters of the mean of train; zeros for standardised values."""
    if likelihood in REAL:
        return [0.0] * targets.shape[1]
    p = (targets.sum(0) + 0.5) / (len(targets) + 1)  # never 0
    bias: list[float] = (np.log(p / (1 - p)) if likelihood == "bernoulli" else np.log(p)).tolist()
    return bias
