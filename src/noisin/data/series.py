"""Series of counts or real values, with covariates that are known in advance.

Nothing here needs torch. A :class:`SeriesTable` has one row per step. The target of a row is
predicted from the rows before it and from the covariates of the row itself, which must therefore be
known before it: the calendar, a price, a planned event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisin.data.corpus import SPLITS
from noisin.errors import InvalidData, InvalidValue

Values = NDArray[np.float64]

# What the values of each likelihood are, and which one fits other values.
SUPPORTS = {
    "bernoulli": ("0 or 1", "For counts use poisson, for real values scaled-gaussian."),
    "poisson": ("a whole number, 0 or more", "For real values use scaled-gaussian."),
    "gaussian": ("a finite number", ""),
    "scaled-gaussian": ("a finite number", ""),
    "student-t": ("a finite number", ""),
}
REAL = ("gaussian", "scaled-gaussian", "student-t")  # whose targets are standardised
# Models compute in float32, which changes larger whole numbers: 16,777,217 becomes 16,777,216.
LARGEST_COUNT = 2**24


@dataclass(frozen=True)
class SeriesTable:
    """The steps of one sequence.

    Attributes:
        name: what messages call it.
        target: the values to predict, ``(T, O)``.
        covariates: what is known in advance of each step, ``(T, C)``.
        scored: which steps are scored, ``(T,)``; the others are only read.
        places: the row of each step in its file, from 0, ``(T,)``; by default 0, 1, 2, ...
    """

    name: str
    target: Values
    covariates: Values
    scored: NDArray[np.bool_]
    places: NDArray[np.intp] | None = None

    def __len__(self) -> int:
        return len(self.target)

    def row(self, step: int) -> int:
        """What messages call a step: its row in the file, from 1."""
        return 1 + (step if self.places is None else int(self.places[step]))

    def rows(self, start: int, stop: int, context: int = 0) -> SeriesTable:
        """Some rows, and up to ``context`` rows before them that are not scored."""
        first = max(0, start - context)
        scored = self.scored[first:stop].copy()
        scored[: start - first] = False
        return replace(
            self,
            target=self.target[first:stop],
            covariates=self.covariates[first:stop],
            scored=scored,
            places=(np.arange(len(self)) if self.places is None else self.places)[first:stop],
        )


@dataclass(frozen=True)
class SeriesSet:
    """A data set.

    Attributes:
        name: of the data.
        targets, covariates: the names of the columns.
        likelihood: of the targets.
        train, valid, test: the sequences of each split.
        seasons: the periods of the seasonal-naive forecasts, in steps.
        sha256: the hash of the content of its files.
        source: where it was read.
        changes: whether a model of real values predicts the change from the step before. That is
            the same density of the value, and follows a level that drifts.
    """

    name: str
    targets: tuple[str, ...]
    covariates: tuple[str, ...]
    likelihood: str
    train: Sequence[SeriesTable]
    valid: Sequence[SeriesTable]
    test: Sequence[SeriesTable]
    seasons: tuple[int, ...]
    sha256: str
    source: str
    changes: bool = False

    def with_likelihood(self, likelihood: str | None) -> SeriesSet:
        """The same data with another likelihood, after a check that its values are possible."""
        found = replace(self, likelihood=likelihood or self.likelihood)
        for split in SPLITS:
            for table in getattr(found, split):
                check_values(table, found.targets, found.likelihood)
        return found


def check_values(table: SeriesTable, targets: Sequence[str], likelihood: str) -> None:
    """Raise unless the likelihood can produce all targets of a table.

    >>> once = SeriesTable("sales.csv", np.array([[3.0], [-1.0]]), np.zeros((2, 0)), np.ones(2, bool))
    >>> check_values(once, ["sold"], "poisson")
    Traceback (most recent call last):
    noisin.errors.InvalidData: sales.csv: column 'sold' has -1 in row 2, and the likelihood poisson needs a whole number, 0 or more. For real values use scaled-gaussian.
    """  # noqa: E501 - the message is one line, as its reader sees it
    if likelihood not in SUPPORTS:
        raise InvalidValue(
            f"series: expected the likelihood {', '.join(SUPPORTS)}, got {likelihood!r:.60}."
        )
    x = table.target
    fits = np.isfinite(x)
    if likelihood == "bernoulli":
        fits &= (x == 0) | (x == 1)
    elif likelihood == "poisson":
        fits &= (x >= 0) & (x == np.floor(x)) & (x <= LARGEST_COUNT)
    if fits.all():
        return
    step, column = np.argwhere(~fits)[0]
    value, (expected, advice) = x[step, column], SUPPORTS[likelihood]
    if likelihood == "poisson" and LARGEST_COUNT < value < np.inf:
        expected = f"counts of at most {LARGEST_COUNT:,}, which float32 represents exactly"
        advice = "Count in a larger unit, or use scaled-gaussian."
    raise InvalidData(
        f"{table.name}: column {targets[column]!r} has {value:.15g} in row {table.row(step)}, and "
        f"the likelihood {likelihood} needs {expected}. {advice}".rstrip()
    )


@dataclass(frozen=True)
class Scaling:
    """How values are brought to the scale of a network, by the mean and spread of train.

    Attributes:
        mean, std: of each column.
        logarithm: whether the logarithm of ``1 + x`` is scaled, as for counts.
    """

    mean: Values
    std: Values
    logarithm: bool = False

    @classmethod
    def of(cls, tables: Sequence[Values], logarithm: bool = False, binary: bool = False) -> Scaling:
        """The scaling of columns; with ``binary``, columns of zeros and ones stay as they are."""
        x = np.concatenate(tables)
        kept = ((x == 0) | (x == 1)).all(0) & binary
        constant = x.max(0) == x.min(0)  # whose std may be a rounding error
        x = np.log1p(x) if logarithm else x
        std = np.where(kept | constant, 1.0, x.std(0))
        return cls(np.where(kept, 0.0, x.mean(0)), std, logarithm)

    @classmethod
    def none(cls, columns: int) -> Scaling:
        """Leaves values as they are."""
        return cls(np.zeros(columns), np.ones(columns))

    def __call__(self, x: Any) -> Any:
        """Values at the scale of the network."""
        return ((np.log1p(x) if self.logarithm else x) - self.mean) / self.std

    def undo(self, x: Any) -> Any:
        """Values at their own scale."""
        x = x * self.std + self.mean
        return np.expm1(x) if self.logarithm else x
