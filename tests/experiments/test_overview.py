"""Tables of one's own runs: points, paired differences, references, formats."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import pytest
from scipy import stats

from noisin.errors import InvalidValue
from noisin.experiments import overview
from noisin.experiments.collection import Collection, collect
from noisin.experiments.formats import Format
from noisin.tasks.unit import BITS_PER_CHARACTER, NATS_PER_FRAME, PERPLEXITY, Unit
from tests.experiments.records import write_run

PLAIN, NOISY = (80.0, 82.0, 90.0), (70.0, 75.0, 76.0)  # the best on valid, by seed


def write_both(folder: Path, unit: Unit | None = None) -> None:
    """Two points of three seeds each; test is 0.95 of valid, or half a nat less."""
    for seed, (plain, noisy) in enumerate(zip(PLAIN, NOISY, strict=True)):
        if unit is not None:
            plain, noisy = math.log(plain), math.log(noisy)
        write_run(folder / f"plain-{seed}", (99.0, plain, 98.0), seed=seed, unit=unit)
        settings = {"noise": {"gamma": 0.5}, "seed": seed, "unit": unit}
        write_run(folder / f"noisy-{seed}", (99.0, noisy, 98.0), **settings)


def rows(folder: Path, **options: str) -> dict[str, dict[str, str]]:
    content = overview.show(collect(folder), "csv", **options)
    return {row["point"]: row for row in csv.DictReader(io.StringIO(content))}


def test_paired_differences_are_those_of_scipy(tmp_path: Path) -> None:
    write_both(tmp_path)
    found = rows(tmp_path)
    assert list(found) == ["gaussian γ 0.5", "no noise"], "the best first"
    logs = [math.log(a / b) for a, b in zip(PLAIN, NOISY, strict=True)]
    low, high = stats.t.interval(0.95, 2, loc=math.fsum(logs) / 3, scale=stats.sem(logs))
    plain = found["no noise"]
    assert (plain["reference"], plain["pairs"], plain["seeds"]) == ("gaussian γ 0.5", "3", "3")
    shown = [float(plain[name]) for name in ("difference_nats", "low_nats", "high_nats")]
    assert shown == pytest.approx([math.fsum(logs) / 3, low, high])
    assert found["gaussian γ 0.5"]["difference_nats"] == "", "from itself"
    percent = [100 * math.expm1(nats) for nats in (shown[0], low, high)]
    told = "{:+.1f} % ({:+.1f} to {:+.1f})".format(*percent)
    assert told in overview.show(collect(tmp_path))


@pytest.mark.parametrize("unit", [NATS_PER_FRAME, BITS_PER_CHARACTER])
def test_other_units(unit: Unit, tmp_path: Path) -> None:
    """In nats or bits, where a percentage means nothing; the intervals in CSV are always nats."""
    write_both(tmp_path, unit)
    logs = [math.log(a / b) for a, b in zip(PLAIN, NOISY, strict=True)]
    mean = math.fsum(logs) / 3
    assert float(rows(tmp_path)["no noise"]["difference_nats"]) == pytest.approx(mean)
    shown = overview.show(collect(tmp_path))
    assert f"{unit.value(mean):+.3f} (" in shown
    assert str(unit) in shown


@pytest.mark.parametrize("name", ["no noise", "plain-1"])
def test_a_named_reference(name: str, tmp_path: Path) -> None:
    write_both(tmp_path)
    best = rows(tmp_path, against=name)["gaussian γ 0.5"]
    assert best["reference"] == "no noise"
    assert float(best["difference_nats"]) < 0
    with pytest.raises(InvalidValue, match="got 'nothing'. Rows: gaussian γ 0.5; no noise."):
        rows(tmp_path, against="nothing")


def test_only_common_seeds_are_compared(tmp_path: Path) -> None:
    write_both(tmp_path)
    write_run(tmp_path / "other", (99.0, 60.0), seed=7, noise={"gamma": 1.0})
    write_run(tmp_path / "open", (99.0, 60.0), seed=0, noise={"gamma": 2.0}, complete=False)
    found = rows(tmp_path, against="no noise")
    assert found["gaussian γ 1"]["pairs"] == "", "no seed in common"
    assert found["gaussian γ 2"]["pairs"] == "", "not complete, so not measured on test"
    write_run(tmp_path / "again", (99.0, 61.0), seed=1, noise={"gamma": 1.0})
    one = rows(tmp_path, against="no noise")["gaussian γ 1"]
    assert (one["pairs"], one["low_nats"]) == ("1", ""), "one pair has no interval"


@pytest.mark.parametrize("form", ["text", "markdown", "latex"])
def test_formats_and_tasks(form: Format, tmp_path: Path) -> None:
    """Each text and model is a table of its own."""
    write_both(tmp_path)
    write_run(tmp_path / "frames", (9.0, 8.5), unit=NATS_PER_FRAME, seed=3)
    shown = overview.show(collect(tmp_path), form)
    for words in ("perplexity", "nats per frame", "reference", "still falling", "8.500"):
        assert words in shown
    assert "nan" not in shown


def test_edges(tmp_path: Path) -> None:
    assert "There are no runs" in overview.show(Collection())
    write_run(tmp_path / "infinite", (None,), noise={"gamma": 1.0})
    write_run(tmp_path / "begun", (), complete=False)
    write_run(tmp_path / "good", (70.0,), noise={"gamma": 0.5})
    write_run(tmp_path / "bad").write("config.json", "{")
    shown = overview.show(collect(tmp_path))
    assert "bad cannot be used" in shown
    assert "nan" not in shown


def test_narrow_terminals(tmp_path: Path) -> None:
    write_both(tmp_path)
    shown = overview.show(collect(tmp_path), width=60)
    assert max(map(len, shown.splitlines())) <= 60
    for head in overview.HEADS:
        assert head in shown
    assert PERPLEXITY.name in shown
