"""The results that are shipped: the records make sense, and what the pages say is what they say."""

from __future__ import annotations

import doctest
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pytest

from noisin.data.datasets import DATASETS
from noisin.experiments import evaluated, formats, presets, tags
from noisin.experiments.collection import collect
from noisin.experiments.evidence import verdicts
from noisin.experiments.formats import Sheet
from noisin.experiments.group import PointGroup, TaskGroup, tasks
from noisin.experiments.paper import lineup
from noisin.experiments.records import Run
from noisin.experiments.seeds import Mean
from noisin.training.schedule import WEIGHTS, Weights

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGE = (RESULTS / "README.md").read_text(encoding="utf-8")
RUNS = collect(RESULTS)
ARMS = [run for run in RUNS if run.name.startswith("manual/arms")]
TUNING = [run for run in RUNS if run.name.startswith("tune/")]
ZOO = [run for run in RUNS if run.name.startswith("zoo/")]
APART = ("tune/", "sequences/", "zoo/")  # have tables of their own
TABLED = [run for run in RUNS if run not in ARMS and not run.name.startswith(APART)]
PTB = "ptb, LSTM 2×200"
HEADS = (
    *("", "valid", "test", "weights", "raw", "averaged", "train", "gap", "seeds", "best epoch"),
    "notes",
)


def sheet(task: TaskGroup) -> Sheet:
    """A task as the page has it."""
    return Sheet(task.title, HEADS, tuple(map(row, task.points)), left=(0, 3, len(HEADS) - 1))


def row(point: PointGroup) -> tuple[str, ...]:
    notes = ", ".join(tag.words for tag in tags.of_point(point))
    return (
        point.label,
        *map(shown, (point.valid, point.test)),
        point.weights,
        *map(shown, (point.valid_of("raw"), point.valid_of("averaged"), point.train, point.gap)),
        *(str(len(point.counted)), point.best_epochs, notes),
    )


def shown(mean: Mean | None) -> str:
    return "-" if mean is None else str(mean)


def test_all_records_can_be_used() -> None:
    assert RUNS.damaged == []
    assert RUNS
    assert all(run.complete for run in RUNS)


def test_the_texts_are_those_of_the_paper() -> None:
    for run in RUNS:
        known = DATASETS.get(run.config.data.name)
        assert known is None or run.text == known.digest


@pytest.mark.parametrize("task", tasks(TABLED), ids=lambda task: task.title)
def test_the_tables_are_those_of_the_records(task: TaskGroup) -> None:
    """If not, the table as it should be is in the message."""
    assert formats.markdown(sheet(task)) in PAGE


def test_the_zoo_is_that_of_the_records() -> None:
    *_, systems = lineup.sheets(ZOO)
    assert formats.markdown(systems) in PAGE


# Of each text: the title of its table, the folder of its grid, the epochs of a run and the budget.
GRIDS = {
    "manual": ("The built-in text", "tune/grid/", 11, 26),
    "ptb-small": ("Penn Treebank, small", "tune/grid-ptb/", 14, 33),
}


def tuning_sheet(
    title: str, grid: Sequence[Run], found: Mapping[str, Any] | None, epochs: int, budget: int
) -> tuple[Sheet, str]:
    """The grid and what tuning has found, by their perplexities on valid, and the verdict."""
    points = {run.config.noise.known_std: run.best["best_valid"] for run in grid
              if run.config.noise and run.best}  # fmt: skip
    rows = [(f"grid, std {std:g}", f"{value:.2f}") for std, value in sorted(points.items())]
    verdict = f"{len(points)} of the 12 stds of the grid are complete: the proof is open."
    if found is not None:
        chosen, spent = math.exp(found["chosen"]["score"]), found["spent"]
        rows.append((f"noisin tune, std {found['chosen']['std']:g}", f"{chosen:.2f}"))
    if found is not None and len(points) == 12:
        ratio = chosen / min(points.values())
        verdict = f"{100 * (ratio - 1):+.1f} % with {spent} of {epochs * 12} epochs: the proof "
        verdict += "holds." if ratio <= 1.02 and spent <= budget else "failed."
    return Sheet(title, ("", "valid"), tuple(rows), left=(0,)), verdict


@pytest.mark.parametrize("preset", GRIDS)
def test_the_verdict_on_tuning_is_that_of_the_records(preset: str) -> None:
    title, folder, *limits = GRIDS[preset]
    page = (RESULTS / "tune" / "README.md").read_text(encoding="utf-8")
    tuned = list((RESULTS / "tune" / "tuning").glob(f"tune-{preset}-*/tune.json"))
    grid = [run for run in TUNING if run.name.startswith(folder)]
    found = json.loads(tuned[0].read_text(encoding="utf-8")) if tuned else None
    table, verdict = tuning_sheet(title, grid, found, *limits)
    if grid:
        assert formats.markdown(table) in page
    assert verdict in page


def seeds_sheet() -> Sheet:
    """What the tuning of the built-in text chose with other seeds."""
    rows = []
    for path in (RESULTS / "tune").glob("*/tune-manual-*/tune.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        settings = tomllib.loads(path.with_name("tuned.toml").read_text(encoding="utf-8"))
        chosen = found["chosen"]
        valid = f"{math.exp(chosen['score']):.2f}"
        start = f"{found['start']['std']:.2f}"
        rows.append((str(settings.get("seed", 1111)), start, f"{chosen['std']:g}", valid))
    heads = "seed", "start", "chosen std", "valid"
    return Sheet("noisin tune on the built-in text, by seed", heads, tuple(sorted(rows)), left=())


def test_the_seeds_of_tuning_are_those_of_the_records() -> None:
    sheet = seeds_sheet()
    assert len(sheet.rows) == 3
    page = (RESULTS / "tune" / "README.md").read_text(encoding="utf-8")
    assert formats.markdown(sheet) in page


def arms_sheet() -> Sheet:
    """The arms on the built-in text, each at its tuned strength, the best first."""
    arms: dict[str, list[Run]] = {}
    for run in ARMS:
        if run.folder.parent.name == "final":
            arms.setdefault(run.folder.name.split("-seed-")[0], []).append(run)
    heads = ("arm", "seeds", "raw valid", "raw test", "averaged valid", "averaged test", "better")
    rows = sorted(map(arm_row, arms.items()), key=lambda row: float(row[-1].split()[0]))
    return Sheet("Arms, 20 epochs", heads, tuple(rows), left=(0,))


def arm_row(arm: tuple[str, list[Run]]) -> tuple[str, ...]:
    name, runs = arm
    cells = [name, str(len(runs))]
    for weights in WEIGHTS:
        bests = [best for run in runs if (best := run.at_best(weights))]
        whole = len(bests) == len(runs)  # under nt an average may not have begun
        cells += [mean(bests, key) if whole else "-" for key in ("best_valid", "test")]
    return *cells, mean([run.best for run in runs if run.best], "test")


def test_the_arms_are_those_of_the_records() -> None:
    assert formats.markdown(arms_sheet()) in PAGE


def test_the_analyses_of_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found = doctest.testfile(str(RESULTS / "README.md"), module_relative=False)
    assert found.attempted
    assert found.failed == 0


def test_the_report_is_about_all_of_them() -> None:
    page = (RESULTS / "report.html").read_text(encoding="utf-8")
    assert f"{len(RUNS)} runs" in page
    assert all(run.name in page for run in RUNS)


def test_the_report_has_all_evaluations() -> None:
    """If not, make it again: noisin report results --out results/report.html."""
    page = (RESULTS / "report.html").read_text(encoding="utf-8")
    shown = 0
    for task in tasks(RUNS):
        sheet = evaluated.sheet(task, task.title)
        for row in () if sheet is None else sheet.rows:
            cells = "".join(f'<td class="number">{entry}</td>' for entry in row[1:])
            assert f'<tr><th scope="row">{escape(row[0])}</th>{cells}</tr>' in page
            shown += 1
    assert shown == 43


@pytest.mark.parametrize(
    ("title", "words", "label"),
    [
        (PTB, "no noise, averaged weights", "no noise"),
        (PTB, "no noise, raw weights", "no noise"),
        (PTB, "Gaussian noise, std 0.5", "gaussian γ 0.5"),
        (PTB, "Gaussian noise, std 1", "gaussian γ 1"),
        (PTB, "Bernoulli noise, std 0.5", "bernoulli std 0.5"),
        (PTB, "dropout", "dropout 0.5/0.4/0.5"),
        (PTB, "dropout and Gaussian noise, std 0.5", "dropout 0.5/0.4/0.5 + gaussian γ 0.5"),
    ],
)
def test_the_rows_of_the_projects_page(title: str, words: str, label: str) -> None:
    (task,) = [task for task in tasks(TABLED) if task.title == title]
    (point,) = [point for point in task.points if point.label == label]
    weights: Weights = "averaged" if "averaged" in words else "raw"
    bests = [best for run in point.counted if (best := run.at_best(weights))]
    shown = " | ".join(mean(bests, name) for name in ("train_clean", "best_valid", "test"))
    assert f"| {words} | {shown} |" in (ROOT / "README.md").read_text(encoding="utf-8")


def mean(bests: list[dict[str, Any]], name: str) -> str:
    values = [best[name] for best in bests]
    return "-" if None in values else str(Mean.of(values))


@pytest.mark.parametrize(
    ("words", "arm"),
    [
        ("no noise", "none"),
        ("Gaussian noise, std 0.35", "weak"),
        ("dropout, rate 0.11", "dropout"),
    ],
)
def test_the_arms_on_the_projects_page(words: str, arm: str) -> None:
    (row,) = [row for row in arms_sheet().rows if row[0] == arm]
    assert f"| {words} | {' | '.join(row[2:6])} |" in (ROOT / "README.md").read_text("utf-8")


def test_the_verdicts_are_those_of_the_records() -> None:
    page = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    for sheet in (verdicts.summary(RUNS), *verdicts.details(RUNS)):
        assert formats.markdown(sheet) in page


@pytest.mark.parametrize(
    ("claim", "folders"),
    [
        ("An RNN overfits after five epochs", ["figure-1"]),
        ("Noise beats dropout", ["manual/arms/final"]),
        ("Only the variance matters", ["manual/families"]),
        ("Noise improves the dropout-LSTM", ["ptb-small", "zoo"]),
        ("Table 3, Penn Treebank, 2 × 650", ["ptb-medium"]),
        ("It works for any exponential-family", ["sequences"]),
    ],
)
def test_the_costs_of_the_evidence(claim: str, folders: list[str]) -> None:
    page = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith(f"| {claim}")]
    runs = [run for run in RUNS if run.name.startswith(tuple(folders)) and run.summary]
    assert runs
    seconds = sum(run.summary.seconds * run.environment["threads"] for run in runs if run.summary)
    assert row.split(" | ")[3] == f"{seconds / 3600:.1f}"


def test_the_commands_are_there() -> None:
    """What the page tells to type has a name that exists."""
    named = re.findall(r"^noisin train ([a-z]\S*)", PAGE, re.MULTILINE)
    assert named
    assert set(named) <= set(presets.names())
