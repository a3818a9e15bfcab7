"""Whether the values of a series fit the arithmetic of a network, once they are standardised."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noisin.data.corpus import SPLITS
from noisin.data.series import REAL, Scaling, SeriesSet, SeriesTable, Values
from noisin.errors import InvalidData

LARGEST = 1e15  # standard deviations: a score has their square, which float32 represents up to 3e38


def check_scale(data: SeriesSet) -> None:
    """Raise unless all real targets and covariates of a data set can be standardised.

    >>> x = np.array([[1.0], [2.0], [1e200]])
    >>> table = SeriesTable("sales.csv", x, np.zeros((3, 0)), np.ones(3, bool))
    >>> check_scale(SeriesSet("", ("y",), (), "gaussian", [table], [], [], (), "", ""))
    Traceback (most recent call last):
    noisin.errors.InvalidData: sales.csv: column 'y' has 1e+200 in row 3, too large for the standard deviation of train, which overflows. Correct it, leave the row out, or use a larger unit.
    """  # noqa: E501 - the message is one line, as its reader sees it
    if data.likelihood in REAL:
        train = [table.target for table in data.train]
        scaling = _scaling(train, data.train, data.targets)
        for table in _all(data):
            _check(table, scaling, table.target, data.targets)
    train = [table.covariates for table in data.train]
    scaling = _scaling(train, data.train, data.covariates, binary=True)
    for table in _all(data):
        _check(table, scaling, table.covariates, data.covariates)


def _all(data: SeriesSet) -> list[SeriesTable]:
    return [table for split in SPLITS for table in getattr(data, split)]


def _scaling(
    train: Sequence[Values],
    tables: Sequence[SeriesTable],
    names: Sequence[str],
    binary: bool = False,
) -> Scaling:
    """The scaling of columns, all of whose means and standard deviations are usable."""
    with np.errstate(all="ignore"):
        found = Scaling.of(train, binary=binary)
    for column in map(int, np.flatnonzero(~np.isfinite(found.mean + found.std))):
        largest = max(range(len(train)), key=lambda i: np.abs(train[i][:, column]).max())
        step = int(np.abs(train[largest][:, column]).argmax())
        raise InvalidData(
            f"{_where(tables[largest], train[largest], names, step, column)}, too large for the "
            f"standard deviation of train, which overflows. Correct it, leave the row out, or use "
            f"a larger unit."
        )
    for column in map(int, np.flatnonzero(found.std == 0)):
        raise InvalidData(
            f"{tables[0].name}: the values of column {names[column]!r} differ by too little for "
            f"their standard deviation, which is 0. Use a smaller unit."
        )
    return found


def _check(table: SeriesTable, scaling: Scaling, x: Values, names: Sequence[str]) -> None:
    """Raise where a standardised value is too large."""
    with np.errstate(all="ignore"):
        level = scaling(x)
    fits = np.abs(level) <= LARGEST  # false for nan
    if fits.all():
        return
    step, column = np.argwhere(~fits)[0]
    raise InvalidData(
        f"{_where(table, x, names, step, column)}, {abs(level[step, column]):.3g} standard "
        f"deviations from the mean of train ({scaling.mean[column]:.3g}): expected at most "
        f"{LARGEST:g}, so that its square fits in float32. Correct it, or leave the row out."
    )


def _where(table: SeriesTable, x: Values, names: Sequence[str], step: int, column: int) -> str:
    """Where a value is, as its reader finds it."""
    value, row = x[step, column], table.row(step)
    return f"{table.name}: column {names[column]!r} has {value:.15g} in row {row}"
