"""The last table beside ours: runs of the zoo's recipes, with and without a cache and the like."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import pytest

from noisin._util.settings import merge
from noisin.data.datasets import DATASETS
from noisin.experiments.collection import Collection, collect
from noisin.experiments.paper import lineup, results, sheets, zoo
from noisin.training import evaluations
from noisin.training.record import RunRecord
from tests.cli.run import noisin
from tests.experiments import records


def write(folder: Path, recipe: str, text: str = "ptb", **options: Any) -> RunRecord:
    """A complete run of a recipe: 70.0 on valid, 66.5 on test."""
    settings = merge({"train": {"averaging": "from_start"}}, zoo.RECIPES[recipe])
    record = records.write_run(folder, (90.0, 70.0, 80.0), **merge(settings, options))
    known = {"name": text, "sha256": DATASETS[text].digest}
    record.write("environment.json", records.ENVIRONMENT | {"data": known})
    return record


def evaluate(folder: Path, perplexity: float, split: str = "test", **used: Any) -> None:
    line = {"split": split, "method": "exact", "weights": "raw", "checkpoint": "best", "epoch": 2}
    line |= {"nats": math.log(perplexity), "count": 1, "seconds": 1.0}
    evaluations.add(folder, line | used)


def rows(folder: Path) -> dict[tuple[str, str], dict[str, str]]:
    """The rows of the CSV by recipe and evaluation."""
    content = csv.DictReader(io.StringIO(sheets.show(5, collect(folder), "csv")))
    return {(row["recipe"], row["evaluation"]): row for row in content}


def test_nothing_is_there() -> None:
    found = lineup.line_up(Collection())
    assert [line.row for line in found.rows] == list(results.SYSTEMS)
    names = {line.recipe.name for line in (*found.rows, *found.relatives)}
    assert names == zoo.RECIPES.keys()
    shown = sheets.show(5, Collection())
    rows = [row for sheet in lineup.sheets(Collection()) for row in sheet.rows]
    assert len(rows) == len(found.rows) + len(found.relatives)
    assert "There are no runs. To make one: noisin train ptb-small-awd" in shown
    for recipe in zoo.SYSTEM_RECIPES.values():
        assert f"{recipe.name}: {recipe.note.strip()}" in shown
        assert f"{recipe.parameters:,}" in shown


def test_a_run_counts_in_each_row_of_its_model(tmp_path: Path) -> None:
    write(tmp_path / "a", "ptb-awd")
    evaluate(tmp_path / "a", 60.0, dynamic={})
    evaluate(tmp_path / "a", 62.0, cache={})
    evaluate(tmp_path / "a", 65.0, "valid", cache={})
    found = rows(tmp_path)
    cached, dynamic = found["ptb-awd", "cache"], found["ptb-awd", "dynamic"]
    for row in (cached, dynamic):
        assert [float(row[name]) for name in ("dev", "test")] == [70.0, 66.5]
        assert (row["seeds"], row["runs"]) == ("1", "a")
    assert float(cached["evaluated_dev"]) == pytest.approx(65.0)
    assert float(cached["evaluated_test"]) == pytest.approx(62.0)
    assert dynamic["evaluated_dev"] == "", "not measured"
    assert float(dynamic["evaluated_test"]) == pytest.approx(60.0)
    assert (cached["paper_test"], dynamic["paper_test"]) == ("52.8", "51.1")
    shown = sheets.show(5, collect(tmp_path))
    (line,) = (text for text in shown.splitlines() if text.startswith("merity2017regularizing"))
    assert " ".join(["53.9", "52.8", "70.0", "66.5", "65.0", "62.0"]) in " ".join(line.split())
    assert "fewer epochs: than the recipe" in shown, "the legend of the notes"


def test_other_recipes(tmp_path: Path) -> None:
    for seed in (1, 2):
        write(tmp_path / f"{seed}", "ptb-small-mos-gaussian", seed=seed)
        evaluate(tmp_path / f"{seed}", 60.0 + seed, cache={}, dynamic={})
    evaluate(tmp_path / "1", 63.0, cache={})
    row = rows(tmp_path)["ptb-small-mos-gaussian", "static"]
    assert (row["table"], row["seeds"]) == ("", "2")
    assert float(row["test_cache_dynamic"]) == pytest.approx(61.5)
    assert row["test_cache"] == "", "only one of the two was evaluated so"
    assert row["notes"] == "fewer epochs"


def notes(folder: Path, every: bool = False) -> tuple[set[str], set[str]]:
    """The recipes and the models of the paper that the remarks are about."""
    found = sheets.remarks(5, collect(folder), every)
    recipes = {name for name in zoo.RECIPES if any(r.startswith(f"{name}: ") for r in found)}
    models = {s.model for s in results.SYSTEMS if any(r.startswith(f"{s.model}: ") for r in found)}
    return recipes, models


def test_only_the_notes_on_the_rows_that_are_shown(tmp_path: Path) -> None:
    write(tmp_path / "a", "ptb-small-mos-gaussian")
    assert notes(tmp_path) == ({"ptb-small-mos-gaussian"}, set())
    legend, *_ = sheets.remarks(5, collect(tmp_path))
    assert "as printed" not in legend, "there is no such column"
    write(tmp_path / "b", "ptb-melis")
    assert notes(tmp_path) == (
        {"ptb-small-mos-gaussian", "ptb-melis"},
        {"2-layer skip connection LSTM"},
    )
    legend, *_ = sheets.remarks(5, collect(tmp_path))
    assert "parameters: as printed, in millions" in legend


def test_all_notes_where_all_rows_are_shown(tmp_path: Path) -> None:
    write(tmp_path / "a", "ptb-small-mos-gaussian")
    recipes, models = notes(tmp_path, every=True)
    assert recipes == zoo.RECIPES.keys()
    assert models == {system.model for system in results.SYSTEMS if system.note}
    assert not any("have no run" in remark for remark in sheets.remarks(5, collect(tmp_path), True))
    assert "have no run" not in sheets.show(5, collect(tmp_path), every=True)


def test_runs_of_other_texts_and_settings_do_not_count(tmp_path: Path) -> None:
    write(tmp_path / "a", "ptb-small-awd", text="wikitext-2")
    write(tmp_path / "b", "ptb-small-awd", train={"lr": 1.0})
    assert rows(tmp_path)["ptb-small-awd", "static"]["seeds"] == "0"
    shown = sheets.show(5, collect(tmp_path))
    assert "Other runs that belong to no system of this table: 2." in shown


def test_it_needs_no_torch(tmp_path: Path) -> None:
    write(tmp_path / "a", "ptb-small-gal")
    ran = noisin("table", "5", "--runs", str(tmp_path), code="sys.modules['torch'] = None")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "66.5" in ran.stdout


def test_another_temperature_is_not_static(tmp_path: Path) -> None:
    write(tmp_path / "a", "ptb-awd")
    evaluate(tmp_path / "a", 66.0, temperature=1.0)
    evaluate(tmp_path / "a", 64.0, temperature=1.1)
    evaluate(tmp_path / "a", 60.0, temperature=1.1, cache={})
    (run,) = collect(tmp_path)
    found = {kind: score for kind, score in run.evaluated().items() if score is not None}
    assert found == pytest.approx({"static": 66.0, "temperature": 64.0, "cache": 60.0})
