"""Two public series of hourly values: bike rentals (counts) and transformers (real values).

``bikes``
    Rentals of Capital Bikeshare in Washington in 2011 and 2012 (Fanaee-T and Gama, 2013; UCI), with
    the calendar of the predicted hour: hour, weekday, month, holiday, working day and year. Weather
    is left out, because it is not known in advance. The last six months are valid and test, three
    each. Of 17,544 hours, 165 have no row in the file. They are filled with zero, so that the same
    hour of the day before is always 24 rows earlier, and are not scored.
``ett``
    Six loads and the oil temperature of an electricity transformer (ETTh1; Zhou et al., 2021), with
    hour and weekday. The usual split: 12, 4 and 4 months of 30 days.

Neither is downloaded. A split begins with a week of unscored context, the end of the split before.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np

from noisin._util.regular import read_regular
from noisin.data.series import SeriesSet, SeriesTable, Values
from noisin.errors import InvalidData, InvalidValue, Unavailable

DAY, WEEK = 24, 168
MONTH = 30 * DAY


class HourlyFile(NamedTuple):
    """A file: its folder and name, its sha256, and the likelihood of its values."""

    folder: str
    file: str
    sha256: str
    likelihood: str


FILES = {
    "bikes": HourlyFile(
        "bike-sharing",
        "hour.csv",
        "e03de4ee4ef4dc376ac6e04bf829673c6269e8eba5c60fa121640fa2f829504f",
        "poisson",
    ),
    "ett": HourlyFile(
        "ett",
        "ETTh1.csv",
        "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
        "scaled-gaussian",
    ),
}


def load(name: str, folder: str | os.PathLike[str] | None = None) -> SeriesSet:
    """``"bikes"`` or ``"ett"``, from ``folder`` or from the folder that ``NOISIN_DATA`` names."""
    if name not in FILES:
        raise InvalidValue(f"series: expected {' or '.join(FILES)}, got {name!r:.60}.")
    known = FILES[name]
    path = _find(known, folder or os.environ.get("NOISIN_DATA"))
    try:
        content = read_regular(path)
    except OSError as error:
        raise Unavailable(f"{path}: cannot be read: {error.strerror}.") from None
    if (sha256 := hashlib.sha256(content).hexdigest()) != known.sha256:
        raise InvalidData(
            f"{path}: is not the {name} data set: its sha256 is {sha256}, expected {known.sha256}. "
            f"To use it as it is, describe its columns: [data.columns]."
        )
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    return (_bikes if name == "bikes" else _ett)(rows, sha256, str(path))


def _find(known: HourlyFile, folder: str | os.PathLike[str] | None) -> Path:
    places = [] if folder is None else [Path(folder) / known.folder, Path(folder)]
    for place in places:
        if (place / known.file).is_file():
            return place / known.file
    searched = " or ".join(str(place / known.file) for place in places) or "NOISIN_DATA is not set"
    raise Unavailable(
        f"series: {known.file} was not found ({searched}). Set NOISIN_DATA to the folder that "
        f"contains {known.folder}/{known.file}, or name it with --data.folder."
    )


def _bikes(rows: list[dict[str, str]], sha256: str, source: str) -> SeriesSet:
    """The counts of every hour of two years, in order."""
    start = datetime(2011, 1, 1)
    known = {
        datetime.fromisoformat(row["dteday"]) + timedelta(hours=int(row["hr"])): row for row in rows
    }
    hours = [start + timedelta(hours=i) for i in range(731 * DAY)]
    days = {hour.date(): row for hour, row in known.items()}
    counts = np.array([[float(known[h]["cnt"]) if h in known else 0.0] for h in hours])
    flags = [[float(days[h.date()][n]) for n in ("holiday", "workingday", "yr")] for h in hours]
    calendar, names = _calendar(hours, months=True)
    table = SeriesTable(
        source,
        counts,
        np.concatenate([calendar, np.array(flags)], 1),
        np.array([h in known for h in hours]),
    )
    july, october = ((datetime(2012, m, 1) - start).days * DAY for m in (7, 10))
    return SeriesSet(
        "bikes",
        ("cnt",),
        (*names, "holiday", "workingday", "yr"),
        FILES["bikes"].likelihood,
        [table.rows(0, july)],
        [table.rows(july, october, WEEK)],
        [table.rows(october, len(table), WEEK)],
        (DAY, WEEK),
        sha256,
        source,
    )


def _ett(rows: list[dict[str, str]], sha256: str, source: str) -> SeriesSet:
    targets = tuple(name for name in rows[0] if name != "date")
    values = np.array([[float(row[name]) for name in targets] for row in rows])
    calendar, names = _calendar([datetime.fromisoformat(row["date"]) for row in rows])
    table = SeriesTable(source, values, calendar, np.ones(len(rows), bool))
    valid, test, end = 12 * MONTH, 16 * MONTH, 20 * MONTH
    return SeriesSet(
        "ett",
        targets,
        names,
        FILES["ett"].likelihood,
        [table.rows(0, valid)],
        [table.rows(valid, test, WEEK)],
        [table.rows(test, end, WEEK)],
        (DAY, WEEK),
        sha256,
        source,
        changes=True,
    )


def _calendar(hours: list[datetime], months: bool = False) -> tuple[Values, tuple[str, ...]]:
    """Hour and weekday, and the month, of each row: a column of zeros and ones for each of them."""
    parts = [("hour", DAY, [h.hour for h in hours]), ("weekday", 7, [h.weekday() for h in hours])]
    if months:
        parts.append(("month", 12, [h.month - 1 for h in hours]))
    columns = [np.eye(size)[place] for _, size, place in parts]
    names = tuple(f"{name} {i}" for name, size, _ in parts for i in range(size))
    return np.concatenate(columns, 1), names
