"""The two public series: their splits, calendars and hashes, and what a model must beat."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from noisin.data import hourly
from noisin.data.hourly import DAY, WEEK
from noisin.data.series import SeriesSet
from noisin.errors import InvalidData, InvalidValue, Unavailable

with_data = pytest.mark.skipif("NOISIN_DATA" not in os.environ, reason="NOISIN_DATA is not set")


def scored(data: SeriesSet) -> list[int]:
    return [int(t[0].scored.sum()) for t in (data.train, data.valid, data.test)]


@with_data
def test_the_hours_of_the_bikes() -> None:
    data = hourly.load("bikes")
    assert sum(scored(data)) == 17_379, "every row of the file"
    train, valid, test = (tables[0] for tables in (data.train, data.valid, data.test))
    assert len(train) == (365 + 182) * DAY, "January 2011 to June 2012"
    assert [len(valid) - WEEK, len(test) - WEEK] == [92 * DAY, 92 * DAY]
    assert not valid.scored[:WEEK].any()
    assert np.array_equal(valid.target[:WEEK], train.target[-WEEK:]), "the end of the split before"
    assert np.array_equal(test.target[:WEEK], valid.target[-WEEK:])
    assert train.target[:4, 0].tolist() == [16, 40, 32, 13]
    assert (train.target[~train.scored] == 0).all()
    names = data.covariates
    hour = train.covariates[:, [names.index(f"hour {i}") for i in range(DAY)]]
    assert np.array_equal(hour.argmax(1), np.arange(len(train)) % DAY)
    first = dict(zip(names, train.covariates[0], strict=True))
    on = {name for name, value in first.items() if value}
    assert on == {"hour 0", "weekday 5", "month 0"}, "a Saturday in January, no working day"


@with_data
def test_the_months_of_the_transformer() -> None:
    data = hourly.load("ett")
    assert scored(data) == [8640, 2880, 2880]
    assert data.targets == ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
    assert data.train[0].target[0, -1] == pytest.approx(30.531, abs=1e-3)
    assert np.array_equal(data.test[0].target[:WEEK], data.valid[0].target[-WEEK:])


def bikes_baseline(data: SeriesSet) -> float:
    """Poisson with the mean of train for each hour of working days and of other days."""
    train, test = data.train[0], data.test[0]
    work = data.covariates.index("workingday")

    def cells(covariates: np.ndarray) -> np.ndarray:
        return covariates[:, :DAY].argmax(1) + DAY * covariates[:, work].astype(int)

    x, cell = train.target[train.scored, 0], cells(train.covariates)[train.scored]
    rate = np.array([x[cell == i].mean() for i in range(2 * DAY)])
    rates = rate[cells(test.covariates)]
    return float(-stats.poisson.logpmf(test.target[:, 0], rates)[test.scored].mean())


def ett_baseline(data: SeriesSet) -> float:
    """The value of the hour before, and a normal error of the spread that it has on train."""
    mean, std = data.train[0].target.mean(0), data.train[0].target.std(0)
    train, test = ((t.target - mean) / std for t in (data.train[0], data.test[0]))
    spread = np.diff(train, axis=0).std(0)
    errors = np.diff(test[WEEK - 1 :], axis=0)
    return float(-stats.norm.logpdf(errors, scale=spread).sum(1).mean())


@with_data
def test_the_anchors_that_a_trained_model_must_beat() -> None:
    assert bikes_baseline(hourly.load("bikes")) == pytest.approx(32.41, abs=0.01)
    assert ett_baseline(hourly.load("ett")) == pytest.approx(2.656, abs=0.001)


def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOISIN_DATA", raising=False)
    with pytest.raises(Unavailable, match=r"hour.csv was not found \(NOISIN_DATA is not set\)"):
        hourly.load("bikes")
    with pytest.raises(Unavailable, match=r"ett/ETTh1.csv or .* --data.folder"):
        hourly.load("ett", tmp_path)
    (tmp_path / "hour.csv").write_text("cnt\n3\n")
    with pytest.raises(InvalidData, match=r"is not the bikes data set: .* \[data.columns\]"):
        hourly.load("bikes", tmp_path)
    with pytest.raises(InvalidValue, match="expected bikes or ett"):
        hourly.load("taxis")
