"""The paper's tables beside ours: like with like, from records that the trainer wrote."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from noisin._util.settings import merge
from noisin.data.datasets import DATASETS
from noisin.errors import InvalidValue
from noisin.experiments import tags
from noisin.experiments.collection import Collection, collect
from noisin.experiments.paper import recipes, results, sheets, tables
from noisin.experiments.records import point
from noisin.experiments.seeds import Mean
from noisin.training import RunConfig
from noisin.training.record import RunRecord
from noisin.training.scores import in_unit
from tests.experiments import records
from tests.training import toy

GAUSSIAN = "ptb-medium-gaussian"


def write(
    folder: Path, recipe: str = GAUSSIAN, valid: Any = (90.0, 70.0, 80.0), **options: Any
) -> RunRecord:
    """A run of a recipe, with these validation perplexities; test is 0.95 of the best."""
    text, complete = options.pop("text", "ptb"), options.pop("complete", True)
    best = options.pop("best", None)
    settings = merge({"train": {"averaging": "from_start"}}, recipes.RECIPES[recipe])
    record = records.write_run(
        folder, valid, complete=complete, best=best, **merge(settings, options)
    )
    known = {"name": text, "sha256": DATASETS[text].digest}
    record.write("environment.json", records.ENVIRONMENT | {"data": known})
    return record


def line(folder: Path, recipe: str = GAUSSIAN) -> tables.TableLine:
    (found,) = (
        line for line in tables.compare(3, collect(folder)).lines if line.result.recipe == recipe
    )
    return found


def result(folder: Path, recipe: str = GAUSSIAN) -> tables.Result:
    return line(folder, recipe).result


def row(folder: Path, method: str, size: str = "medium") -> dict[str, str]:
    """A row of the CSV."""
    content = sheets.show(3, collect(folder), "csv")
    rows = [r for r in csv.DictReader(io.StringIO(content)) if r["size"] == size]
    return next(r for r in rows if r["row"] == method)


# The whole way, with the trainer


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a recipe, as it is but for the text, which pretends to be Penn Treebank."""
    out = tmp_path_factory.mktemp("trained")
    text = dataclasses.replace(toy.corpus(), sha256=DATASETS["ptb"].digest)
    for seed in (1, 2):
        flags = {"seed": seed, "threads": 1, "train": {"epochs": 1, "clean_tokens": 0}}
        config = RunConfig.parse(merge(recipes.RECIPES[GAUSSIAN], flags))
        toy.train(config, out / f"seed-{seed}", text)
    return out


def test_runs_of_the_trainer(trained: Path) -> None:
    found = result(trained)
    summaries = [RunRecord(trained / f"seed-{seed}").summary or {} for seed in (1, 2)]
    tests, valid = (
        [in_unit(summary["best"][split], found.runs[0].unit) or math.nan for summary in summaries]
        for split in ("test", "valid")
    )
    assert found.test == Mean(statistics.mean(tests), statistics.stdev(tests), 2)
    assert found.dev is not None
    assert found.dev.mean == statistics.mean(valid)
    assert [run.name for run in found.runs] == ["seed-1", "seed-2"]
    assert (found.epochs, found.limit) == ((1, 1), 200)
    assert found.notes == (tags.STILL_FALLING, tables.FEWER_EPOCHS)
    shown = sheets.show(3, collect(trained))
    told = f"{found.test.mean:.1f} ± {found.test.std:.1f}"
    (mine,) = (text for text in shown.splitlines() if told in text)
    assert re.match(r"Gaussian +1\.10 +1\.10 +76\.2 +71\.8 ", mine)
    assert f"{found.test.mean - 71.8:+.1f}" in mine
    assert "1 of 200  still falling, fewer epochs" in mine
    assert "35 of the 36 rows have no run: noisin table 3 --all shows them." in shown
    assert re.findall(r"^(?:Gaussian|None|Beta) ", shown, re.M) == ["Gaussian "], "its row alone"
    everything = sheets.show(3, collect(trained), every=True)
    assert len(re.findall(r"^(?:Gaussian|None|Beta) ", everything, re.M)) == 6


# Which runs count


def test_nothing_is_there(tmp_path: Path) -> None:
    for number in (3, 4):
        comparison = tables.compare(number, Collection())
        assert [found.cell for found in comparison.lines] == [
            cell for cell in results.CELLS if cell.table == number
        ]
        assert all(found.result.runs == () for found in comparison.lines)
        shown = sheets.show(number, collect(tmp_path))
        assert "have no run" not in shown, "the paper's table"
        assert len(re.findall(r"^(?:Gaussian|None|Beta) ", shown, re.M)) == 6
        assert "There are no runs. To make one: noisin train ptb-medium-gaussian" in shown


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 5},
        {"threads": 2},
        {"device": "cuda"},
        {"train": {"epochs": 3}},
        {"train": {"patience": 3}},
        {"train": {"minutes": 3}},
        {"train": {"clean_tokens": 0}},
        {"train": {"save_steps": 7}},
        {"data": {"folder": "/elsewhere"}},
    ],
    ids=str,
)
def test_what_leaves_the_model_as_it_is(change: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "a", **change)
    assert len(result(tmp_path).runs) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"train": {"lr": 20.0}}, "train.lr = 20.0 and 30.0"),
        ({"train": {"eval_batch_size": 1}}, "train.eval_batch_size = 1 and 10"),
        ({"train": {"averaging": "none"}}, "train.averaging = 'none' and 'from_start'"),
        ({"noise": {"gamma": 1.0}}, "noise.gamma = 1.0 and 1.1"),
        ({"noise": {"feedback": False}}, "noise.feedback = False and True"),
        ({"model": {"dropout": {"input": 0.1}}}, "model.dropout.input = 0.1 and 0.0"),
        ({"model": {"hidden_size": 200}}, "model.hidden_size = 200 and 650"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    """The run counts nowhere, and the table says why."""
    write(tmp_path / "a", **change)
    assert all(found.result.runs == () for found in tables.compare(3, collect(tmp_path)).lines)
    shown = sheets.show(3, collect(tmp_path))
    assert f"belongs to no cell: against ptb-medium-gaussian, {told}." in shown


def test_another_text(tmp_path: Path) -> None:
    """By the same name, or not told."""
    write(tmp_path / "a", text="wikitext-2", data={"name": "ptb"})
    write(tmp_path / "b").write("environment.json", {})
    assert result(tmp_path).runs == ()
    shown = sheets.show(3, collect(tmp_path))
    assert shown.count("settings are those of ptb-medium-gaussian, but its text is another") == 2


def test_runs_of_other_tables_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "a", "wt2-medium", text="wikitext-2")
    shown = sheets.show(3, collect(tmp_path))
    assert "Other runs that belong to no cell of this table: 1." in shown
    assert "to no cell" not in sheets.show(4, collect(tmp_path))
    (found,) = (n for n in tables.compare(4, collect(tmp_path)).lines if n.result.runs)
    assert (found.cell.row, found.cell.size) == ("None", "medium")


def test_many_others_are_not_listed_one_by_one(tmp_path: Path) -> None:
    for i in range(12):
        write(tmp_path / f"{i}", noise={"gamma": 0.1}, seed=i)
    shown = sheets.show(3, collect(tmp_path))
    assert shown.count("belongs to no cell") == sheets.MOST
    assert "this table: 2." in shown


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (3, "76.0 for the paper's 77.0 (medium) and 72.3 for the paper's 75.3 (large)"),
        (4, "86.9 for the paper's 84.8 (medium) and 82.3 for the paper's 91.0 (large)"),
    ],
)
def test_dropout_elsewhere(number: int, told: str) -> None:
    """Beside the paper's own, for its LSTM with dropout was not the best there was."""
    assert told in sheets.show(number, Collection())


def test_no_two_recipes_are_alike() -> None:
    keys = {point(recipes.config(name)) for name in recipes.RECIPES}
    assert len(keys) == len(recipes.RECIPES)


@pytest.mark.parametrize("cell", results.CELLS[::7], ids=recipes.name_of)
def test_a_run_reaches_its_cell(cell: results.TableCell, tmp_path: Path) -> None:
    write(tmp_path / "a", recipes.name_of(cell), text=cell.corpus)
    (found,) = (n for n in tables.compare(cell.table, collect(tmp_path)).lines if n.result.runs)
    assert found.cell is cell
    assert found.difference == pytest.approx(0.95 * 70 - cell.test)


@pytest.mark.parametrize(
    ("reading", "mark"), [("recurrent-dropout", "(recurrent)"), ("gate-dropout", "(gates)")]
)
def test_the_other_readings_of_dropout(reading: str, mark: str, tmp_path: Path) -> None:
    """Each has its own line where there are runs of it."""
    assert mark not in sheets.show(3, Collection())
    write(tmp_path / "a", f"ptb-medium-{reading}-beta")
    shown = sheets.show(3, collect(tmp_path), every=True).splitlines()
    place = next(i for i, text in enumerate(shown) if text.startswith(f"D + Beta {mark}"))
    assert shown[place - 1].split()[:3] == ["D", "+", "Beta"]
    assert shown[place - 1].endswith(" -"), "no run of the first reading"
    assert " 69.2 " in shown[place], "the same cell of the paper"
    assert any(text.startswith(f"{mark}: another reading") for text in shown)
    assert result(tmp_path, f"ptb-medium-{reading}-beta").runs[0].name == "a"


# What they come to


def test_seeds(tmp_path: Path) -> None:
    """Mean and sample standard deviation, at the best epoch by validation."""
    for seed, best in enumerate((70.0, 73.0, 71.0)):
        write(tmp_path / f"{seed}", valid=[90.0, best, *[95.0] * seed], seed=seed)
    found = result(tmp_path)
    assert found.dev == Mean(pytest.approx(71 + 1 / 3), pytest.approx(1.5275, abs=1e-4), 3)
    assert found.test is not None
    assert found.test.mean == pytest.approx(0.95 * 214 / 3)
    assert found.epochs == (2, 4)
    assert "2-4 of 200" in sheets.show(3, collect(tmp_path))
    mine = row(tmp_path, "Gaussian")
    assert (mine["seeds"], mine["fewest_epochs"], mine["most_epochs"]) == ("3", "2", "4")
    assert float(mine["dev"]) == found.dev.mean
    assert float(mine["difference"]) == found.test.mean - 71.8
    assert mine["runs"] == "0; 1; 2"
    assert (mine["recipe"], mine["gamma"], mine["std"]) == (GAUSSIAN, "1.1", "1.1")


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    write(tmp_path / "a")
    assert result(tmp_path).dev == Mean(70.0, None, 1)
    assert row(tmp_path, "Gaussian")["dev_std"] == ""
    assert re.search(r"71\.8 +70\.0 +66\.5 +-5\.3 +1 +3 of 200", sheets.show(3, collect(tmp_path)))


def test_unfinished(tmp_path: Path) -> None:
    write(tmp_path / "a", valid=[90.0, 80.0, 85.0])
    assert result(tmp_path).notes == (tables.FEWER_EPOCHS,)
    write(tmp_path / "b", valid=[90.0, 80.0, 75.0], seed=2)
    assert result(tmp_path).notes == (tags.STILL_FALLING, tables.FEWER_EPOCHS)
    shown = sheets.show(3, collect(tmp_path))
    assert "still falling: the best epoch of a run is its last one" in shown


def test_the_whole_budget(tmp_path: Path) -> None:
    write(tmp_path / "a", valid=[90.0, *[95.0] * 199])
    assert result(tmp_path).notes == ()
    shown = sheets.show(3, collect(tmp_path))
    assert "200 of 200" in shown
    assert "fewer epochs" not in shown


def test_a_run_that_is_not_complete(tmp_path: Path) -> None:
    """Counts where there is none that is, without a test perplexity."""
    write(tmp_path / "a", complete=False)
    found = line(tmp_path)
    assert found.result.dev == Mean(70.0, None, 1)
    assert found.result.test is found.difference is None
    assert "1 not complete" in found.result.notes
    assert row(tmp_path, "Gaussian")["test"] == ""
    write(tmp_path / "b", valid=[90.0, 60.0, 61.0], seed=2)
    assert result(tmp_path).dev == Mean(60.0, None, 1)
    assert "1 not complete" in result(tmp_path).notes


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    write(tmp_path / "a", valid=[], complete=False)
    assert result(tmp_path).notes == ("1 not complete",)
    assert result(tmp_path).dev is None


def test_a_run_that_diverged(tmp_path: Path) -> None:
    record = write(tmp_path / "a", complete=False)
    record.write("diverged.json", {"config": record.config.hash(), "message": "nan", "epochs": 3})
    assert result(tmp_path).notes == ("1 diverged",)
    assert result(tmp_path).dev is None
    assert "1 diverged" in sheets.show(3, collect(tmp_path))
    write(tmp_path / "b", seed=2)
    assert result(tmp_path).notes == ("1 diverged", tables.FEWER_EPOCHS)


def test_two_runs_of_a_seed(tmp_path: Path) -> None:
    """The one that went further stands for both; one that is complete goes before all."""
    write(tmp_path / "a", valid=[90.0, 80.0, 85.0])
    write(tmp_path / "b", valid=[90.0, 80.0, 70.0, 75.0], threads=2)
    write(tmp_path / "c", valid=[90.0] * 9, complete=False)
    assert [run.name for run in result(tmp_path).runs] == ["b"]
    assert result(tmp_path).notes == ("2 repeated", tables.FEWER_EPOCHS)


def test_an_infinite_perplexity(tmp_path: Path) -> None:
    write(tmp_path / "a", best={"test": None})
    write(tmp_path / "b", seed=2)
    found = result(tmp_path)
    assert found.test == Mean(math.inf, None, 2)
    assert "+inf" in sheets.show(3, collect(tmp_path))


# Numbers, formats, damage


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (0, "The paper has no table 0. Those of perplexities are 3, 4 and 5."),
        (1, "Table 1 lists log-normalisers"),
        (2, "Table 2 lists noises"),
        (6, "The paper has no table 6"),
        (-3, "The paper has no table -3"),
    ],
)
def test_numbers_of_no_table(number: int, message: str) -> None:
    for call in (sheets.show, sheets.remarks):
        with pytest.raises(InvalidValue, match=re.escape(message)):
            call(number, Collection())


def test_the_last_table() -> None:
    for form in ("text", "markdown", "latex", "csv"):
        shown = sheets.show(5, Collection(), form)
        for system in results.SYSTEMS:
            assert str(system.test) in shown
        assert shown.count("copied error") == 2
    lines = csv.DictReader(io.StringIO(sheets.show(5, Collection(), "csv")))
    rows = [line for line in lines if line["table"] == "5"]
    assert [(r["citation"], r["paper_dev"]) for r in rows] == [
        (s.citation or "", str(s.dev) if s.dev else "") for s in results.SYSTEMS
    ]
    assert all(r["dev"] == r["test"] == "" for r in rows)


@pytest.mark.parametrize("number", [3, 4])
def test_every_format_has_every_cell(number: int) -> None:
    cells = [cell for cell in results.CELLS if cell.table == number]
    shown = {
        form: sheets.show(number, Collection(), form) for form in ("text", "markdown", "latex")
    }
    for cell in cells:
        gamma = "" if cell.gamma is None else rf"{cell.gamma:.2f}"
        for form, gap in (("text", r"\s+"), ("markdown", r"\s*\|\s*"), ("latex", r"\s*&\s*")):
            entries = [re.escape(cell.row), gamma, gamma and f"{cell.std:.2f}"]
            entries += [str(cell.dev), str(cell.test)]
            if form == "text":
                entries = [entry for entry in entries if entry]
            assert re.search(gap.join(entries) + r"\b", shown[form]), (form, cell)
    content = csv.DictReader(io.StringIO(sheets.show(number, Collection(), "csv")))
    rows = list(content)
    assert {r["notes"] for r in rows} == {"missing"}
    assert [
        (r["row"], r["size"], r["gamma"], float(r["paper_dev"]), float(r["paper_test"]))
        for r in rows
    ] == [(c.row, c.size, str(c.gamma or ""), c.dev, c.test) for c in cells]


def test_hostile_names_do_no_harm(tmp_path: Path) -> None:
    for name in ("<script>", "a|b", "a_b & 5%\\x{", "a\nb", 'a,"b'):
        write(tmp_path / name, seed=len(name), noise={"gamma": 0.7})
    assert "\\<script\\>" in sheets.show(3, collect(tmp_path), "markdown")
    assert r"a\_b \& 5\%\textbackslash{}x\{" in sheets.show(3, collect(tmp_path), "latex")
    assert "a b belongs to no cell" in sheets.show(3, collect(tmp_path), "text")
    write(tmp_path / 'x,"y\nz')
    assert row(tmp_path, "Gaussian")["runs"] == 'x,"y\nz'


def test_damaged_records_are_named(tmp_path: Path) -> None:
    record = write(tmp_path / "good")
    write(tmp_path / "bad").write("config.json", "{")
    (tmp_path / "good" / "nothing").mkdir()
    found = collect(tmp_path)
    assert len(found) == 1
    assert record.summary is not None
    for number in (3, 4, 5):
        assert any(r.startswith("bad cannot be used: ") for r in sheets.remarks(number, found))
