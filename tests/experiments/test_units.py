"""Records of both kinds, in every unit: read, judged, named and drawn alike."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from noisin.errors import InvalidValue
from noisin.experiments import words
from noisin.experiments.collection import collect
from noisin.experiments.group import TaskGroup, tasks
from noisin.experiments.pictures import charts
from noisin.experiments.pictures.palette import combination
from noisin.experiments.records import Run, judged, read_run
from noisin.experiments.report import page
from noisin.experiments.words import labels
from noisin.noise import ranges
from noisin.tasks.unit import (
    BITS_PER_CHARACTER,
    NATS_PER_FRAME,
    NATS_PER_STEP,
    PERPLEXITY,
    UNITS,
    Score,
    Unit,
)
from noisin.training import scores
from noisin.training.config import RunConfig
from noisin.training.record import RunRecord
from noisin.training.summary import BestResult, RunSummary
from tests.experiments.records import line, nats_line, score, write_run


def rewrite(folder: Path, lines: list[dict[str, Any]]) -> Run:
    """A run with these lines of metrics, which is not complete."""
    (folder / "metrics.jsonl").write_text("".join(json.dumps(some) + "\n" for some in lines))
    return read_run(folder)


def only_task(folder: Path) -> TaskGroup:
    collection = collect(folder)
    assert not collection.damaged
    (task,) = tasks(collection)
    return task


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_a_run_has_its_scores_in_its_unit(unit: Unit, tmp_path: Path) -> None:
    write_run(tmp_path / "run", (5.0, 4.0, 4.5), unit=unit)
    run = read_run(tmp_path / "run")
    best = run.best
    assert best is not None
    assert run.unit == unit
    assert run.valid == [unit.value(nats) for nats in (5.0, 4.0, 4.5)]
    assert (best["epoch"], best["best_valid"]) == (2, unit.value(4.0))
    assert (best["test"], best["train_clean"]) == (unit.value(3.5), unit.value(2.0))
    assert best["train"] == unit.value(3.0)


def test_old_and_new_lines_in_one_file(tmp_path: Path) -> None:
    """A run of noisin 0.1 that was continued: perplexities are unchanged, and compare with nats."""
    write_run(tmp_path / "run", complete=False)
    run = rewrite(tmp_path / "run", [line(1, 90.3), line(2, 70.1), nats_line(3, math.log(71.0))])
    assert run.valid == [90.3, 70.1, pytest.approx(71.0)]
    assert run.best is not None
    assert (run.best["epoch"], run.best["best_valid"]) == (2, 70.1)
    run = rewrite(tmp_path / "run", [line(1, 90.3), line(2, 70.1), nats_line(3, math.log(69.0))])
    assert run.best is not None
    assert run.best["epoch"] == 3


@given(
    st.lists(st.floats(-3.0, 9.0), min_size=1, max_size=12),
    st.lists(st.floats(-3.0, 9.0) | st.none(), min_size=12, max_size=12),
    st.sampled_from(["none", "nt", "from_start"]),
)
def test_one_rule_whatever_the_kind_of_the_lines(
    raw: list[float], averages: list[float | None], averaging: str
) -> None:
    """The same scores as perplexities, as nats, or half and half, have the same best epoch."""
    config = RunConfig.parse({"train": {"averaging": averaging, "nt_window": 2}})
    raw = [round(value, 3) for value in raw]  # else exp and log may round two scores into one
    pairs = [(v, None if a is None else round(a, 3)) for v, a in zip(raw, averages, strict=False)]
    values = [value for pair in pairs for value in pair if value is not None]
    assume(len(set(values)) == len(values))  # of equal scores, rounding would decide
    old = [
        line(i + 1, math.exp(v), valid_averaged=None if a is None else math.exp(a))
        for i, (v, a) in enumerate(pairs)
    ]
    new = [
        nats_line(i + 1, v, valid_averaged=None if a is None else score(a))
        for i, (v, a) in enumerate(pairs)
    ]
    half = len(pairs) // 2
    found = [judged(config, lines) for lines in (old, new, old[:half] + new[half:])]
    for other in found[1:]:
        assert other.best_weights == found[0].best_weights
        assert {w: b.epoch for w, b in other.bests.items()} == {
            w: b.epoch for w, b in found[0].bests.items()
        }


def test_scores_that_are_not_finite(tmp_path: Path) -> None:
    """A null is infinite, and so is a perplexity of more than 709 nats; the nats are not."""
    write_run(tmp_path / "nats", (None, 1000.0), unit=NATS_PER_STEP)
    write_run(tmp_path / "perplexity", (None, 1000.0), unit=PERPLEXITY)
    nats, perplexity = collect(tmp_path)
    assert nats.valid == [math.inf, 1000.0]
    assert perplexity.valid == [math.inf, math.inf]
    for run in (nats, perplexity):
        assert run.best is not None
        assert run.best["epoch"] == 2, "the schedule compares nats"


def test_an_average_of_zero_nats_counts(tmp_path: Path) -> None:
    settings = {"averaging": "from_start"}
    write_run(tmp_path / "run", (3.0, 2.0), unit=NATS_PER_STEP, complete=False, train=settings)
    lines = [nats_line(i, 3.0 - i, valid_averaged=score(0.0)) for i in (1, 2)]
    run = rewrite(tmp_path / "run", lines)
    assert run.decisions.best_weights == "averaged"
    assert run.valid == [0.0, 0.0]


def test_a_task_without_test_data(tmp_path: Path) -> None:
    """Nothing was measured, which is neither infinite nor a fault of the averaged weights."""
    write_run(tmp_path / "run", (5.0, 4.0), unit=NATS_PER_STEP, best={"test": None})
    path = tmp_path / "run" / "summary.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"raw": content["best"]}))
    run = read_run(tmp_path / "run")
    assert run.best is not None
    assert run.best["test"] is None
    assert not run.not_scored


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"nats": "low", "count": 3}, "valid must have nats, a finite number or null, and count"),
        ({"nats": 1.0}, "valid must have nats"),
        ({"count": 3}, "valid must have nats"),
        ({"nats": True, "count": 3}, "valid must have nats"),
        ({"nats": math.nan, "count": 3}, "valid must have nats"),
        ({"nats": math.inf, "count": 3}, "valid must have nats"),
        ({"nats": 10**400, "count": 3}, "valid must have nats"),
        ({"nats": 1.0, "count": 0}, "valid must have nats"),
        ({"nats": 1.0, "count": -3}, "valid must have nats"),
        ({"nats": 1.0, "count": 2.0}, "valid must have nats"),
        ({"nats": 1.0, "count": True}, "valid must have nats"),
        ({"nats": 1.0, "count": 10**400}, "valid must have nats"),
        (80.0, "line 2: valid is a perplexity, and environment.json has the unit nats per step"),
        (-1.0, "valid must be 0 or more, or null, got -1.0"),
    ],
)
def test_a_damaged_score_is_named(bad: Any, message: str, tmp_path: Path) -> None:
    write_run(tmp_path / "run", (1.0, -2.0), unit=NATS_PER_STEP, complete=False)
    with pytest.raises(InvalidValue, match=re.escape(message)):
        rewrite(tmp_path / "run", [nats_line(1, 1.0), nats_line(2, -2.0) | {"valid": bad}])


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        ({"name": "nats"}, "unit.per is missing"),
        ({"name": "bytes", "per": "word"}, "unit.name must be 'perplexity', 'nats' or 'bits'"),
        ({"name": "nats", "per": ""}, "unit.per must"),
        ({"name": "nats", "per": 3}, "unit.per must be a valid string"),
        ("nats", "unit must be a JSON object"),
        (None, "unit must be a JSON object"),
    ],
)
def test_a_damaged_unit_is_named(unit: Any, message: str, tmp_path: Path) -> None:
    record = write_run(tmp_path / "run", (1.0,), unit=NATS_PER_STEP)
    record.write("environment.json", record.environment | {"unit": unit})
    with pytest.raises(InvalidValue, match=re.escape(message)):
        read_run(record.folder)


def test_a_term_may_be_negative_and_must_be_a_number(tmp_path: Path) -> None:
    write_run(tmp_path / "run", (1.0,), unit=NATS_PER_STEP, complete=False)
    terms = {"kl": 0.5, "own": -0.25, "broken": None}
    assert rewrite(tmp_path / "run", [nats_line(1, 1.0, terms=terms)]).metrics[0]["terms"] == terms
    with pytest.raises(InvalidValue, match=r"terms.kl must be a finite number, or null, got 'x'"):
        rewrite(tmp_path / "run", [nats_line(1, 1.0, terms={"kl": "x"})])


# Summaries


def test_a_summary_is_read_as_it_was_written(tmp_path: Path) -> None:
    raw, averaged = nats_line(2, 4.0, valid_averaged=score(4.2)), nats_line(3, 4.1)
    bests = {
        "raw": BestResult("raw", raw, score(3.9), raw["train_clean"], 2),
        "averaged": BestResult("averaged", averaged, score(3.8), score(1.5), 3),
    }
    summary = RunSummary(
        epochs=3,
        seconds=61.0,
        bests=bests,
        best="averaged",
        ended="epochs",
        steps=300,
        tokens=15000,
        parameters=7,
        last=averaged,
        config="0" * 64,
    )
    record = RunRecord(tmp_path)
    record.write("summary.json", summary.to_json())
    content = record.summary
    assert content is not None
    assert RunSummary.parse(content).to_json() == content == summary.to_json()
    assert RunSummary.parse(content).bests["raw"] == bests["raw"]
    assert content["best"] == content["averaged"]
    assert content["averaged"]["train_clean"] == score(1.5), "of the average, not of the line"
    assert (
        content["raw"] | {"weights": "raw", "test": score(3.9), "checkpoint": 2} == content["raw"]
    )
    assert {name: content["raw"][name] for name in raw} == raw


def test_a_summary_of_noisin_0_1(tmp_path: Path) -> None:
    record = write_run(tmp_path / "run")
    content = record.summary
    assert content is not None
    summary = RunSummary.parse({name: content[name] for name in ("best", "epochs", "seconds")})
    assert list(summary.bests) == ["raw"]
    assert (summary.best, summary.bests["raw"].epoch, summary.bests["raw"].test) == ("raw", 2, 66.5)
    assert (summary.ended, summary.steps, summary.config) == (None, None, "")
    assert summary.measured("raw", 2) == summary.bests["raw"]
    assert summary.measured("raw", 1) is summary.measured("averaged", 2) is None


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 10**12))
def test_a_score_survives_the_record(nats: float, count: int) -> None:
    written = json.loads(json.dumps(scores.to_json(Score(nats, count)), allow_nan=False))
    assert scores.nats(written) == nats
    assert written["count"] == count


# Pages


def test_the_words_of_a_page_are_those_of_the_unit(tmp_path: Path) -> None:
    write_run(tmp_path / "a", (9.0, 8.5), unit=NATS_PER_FRAME)
    for gamma, valid in ((0.5, 8.4), (1.0, 8.42)):
        write_run(tmp_path / f"{gamma}", (9.0, valid), unit=NATS_PER_FRAME, noise={"gamma": gamma})
    text = page.render(collect(tmp_path), tmp_path)
    assert "perplexit" not in text.lower()
    for expected in (
        *("Nats per frame by epoch", "Lowest nats per frame on valid", "All scores are those"),
        *("8.400", "−0.100", "Nats per frame of manual", "nats per frame on valid less"),
    ):
        assert expected in text
    assert "&#8239;%" not in text, "nats have no percent"
    write_run(tmp_path / "b", data={"name": "ptb"})
    text = page.render(collect(tmp_path), tmp_path)
    assert "Perplexities of ptb" in text
    assert "All scores are those" in text


@pytest.mark.parametrize("unit", [NATS_PER_STEP, BITS_PER_CHARACTER], ids=str)
def test_zero_and_negative_scores_are_drawn(unit: Unit, tmp_path: Path) -> None:
    valid = (2.0, 0.0, -1.0, -0.5)
    write_run(tmp_path / "plain", valid, unit=unit)
    for gamma, best in ((0.5, 0.0), (1.0, -3.0)):
        write_run(tmp_path / f"{gamma}", (1.0, best), unit=unit, noise={"gamma": gamma})
    task = only_task(tmp_path)
    assert [point.label for point in task.points] == ["gaussian γ 1", "no noise", "gaussian γ 0.5"]
    figure, lines = charts.learning_curves(task)
    (axes,) = figure.axes
    assert (axes.get_yscale(), axes.get_ylabel()) == ("linear", str(unit))
    drawn = {tuple(line.get_ydata()) for line in axes.lines}
    assert tuple(unit.value(v) for v in valid) in drawn
    assert tuple(unit.value(v - 2) for v in valid) in drawn, "train"
    low, high = axes.get_ylim()
    assert low < unit.value(-5.0) < unit.value(2.0) < high, "train at -3 and valid at 2"
    assert len(lines) == 3
    spread = charts.spread(task)
    assert spread is not None
    (axes,) = spread[0].axes
    assert axes.get_ylabel() == f"{unit} on valid"
    assert len(spread[1]) == 2, "the level without noise, and the family"
    low, high = axes.get_ylim()
    assert low < unit.value(-3.0) < unit.value(0.0) < high
    text = page.render(collect(tmp_path), tmp_path)
    number = f"{abs(unit.value(-3.0)):.{unit.digits}f}"
    assert f'<td class="number">−{number}</td>' in text, "a minus sign"
    assert f">-{number}" not in text, "and not a hyphen"


def test_the_axis_of_one_score_and_of_none(tmp_path: Path) -> None:
    write_run(tmp_path / "one", (-2.0,), unit=NATS_PER_STEP)
    (axes,) = charts.learning_curves(only_task(tmp_path))[0].axes
    assert axes.get_ylim()[0] < -4.0 < -2.0 < axes.get_ylim()[1]
    write_run(tmp_path / "none" / "run", (None,), unit=NATS_PER_STEP)
    (axes,) = charts.learning_curves(only_task(tmp_path / "none"))[0].axes
    assert all(map(math.isfinite, axes.get_ylim()))


def test_two_units_are_two_tasks(tmp_path: Path) -> None:
    for unit in (NATS_PER_STEP, PERPLEXITY):
        write_run(tmp_path / unit.name, (5.0, 4.0), unit=unit)
    titles = [task.title for task in tasks(collect(tmp_path))]
    assert titles == ["manual, LSTM 2×650 (nats per step)", "manual, LSTM 2×650 (perplexity)"]


# Families


def test_looks_are_all_different() -> None:
    known = [combination(k) for k in range(500)]
    assert len(set(known)) == 500
    assert len({colour for colour, _ in known[:9]}) == len({m for _, m in known[:9]}) == 9


def test_a_family_keeps_its_look_beside_others() -> None:
    more = [f"my_package.noises:Law{i}" for i in range(100)]
    found = charts.looks([*more, "triangular", *charts.PAPER])
    assert len(set(found.values())) == len(found) == len(charts.PAPER) + 1 + 101
    assert charts.LOOKS.items() <= found.items()
    assert charts.looks(["beta"]) == charts.LOOKS


def test_the_families_of_the_paper_are_all_there() -> None:
    kebab = [re.sub(r"(?<!^)(?=[A-Z])", "-", law).lower() for law in ranges.RANGES]
    assert set(charts.PAPER) <= set(kebab)


# Your own models and tasks


class Own:
    """What CONFIG calls OwnConfig: what identifies your own model and task."""

    def __init__(self, model: dict[str, Any], task: dict[str, Any]) -> None:
        self.model, self.task = model, task


def test_the_title_of_your_own_model_and_task() -> None:
    own = Own({"name": "TCN", "class": "my:TCN"}, {"name": "traffic", "sha256": "0" * 64})
    config = RunConfig().model_copy()
    object.__setattr__(config, "own", own)
    assert words.task(config) == "traffic, TCN"
    assert words.points([config]) == ["TCN"]
    assert not words.is_plain(config)
    assert words.is_plain(RunConfig())


def test_points_with_one_label_are_told_apart(tmp_path: Path) -> None:
    """Sections that are absent are off, and where words fail the hash of the settings remains."""
    name = "own.model.arguments.top_k"
    settings = [{"train.lr": 1.0}, {"train.lr": 1.0, name: 5}]
    usual = {"train.lr": "1.0", name: "None"}
    assert [labels._deviations(some, usual) for some in settings] == [[], ["top k 5"]]
    usual[name] = "5"
    assert [labels._deviations(some, usual) for some in settings] == [["no top k"], []]
