"""The last table: the systems that the paper compares with, next to our runs of their recipes.

Below them are the other recipes of the :mod:`.zoo`. Besides the model as trained, a run counts with
a cache, dynamic evaluation or Monte Carlo where ``noisin evaluate`` has measured it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from noisin.data.datasets import DATASETS
from noisin.experiments.formats import Sheet
from noisin.experiments.paper import results, zoo
from noisin.experiments.paper.results import System
from noisin.experiments.paper.tables import Result, left_out, result_of, shown_lines
from noisin.experiments.paper.zoo import SystemRecipe
from noisin.experiments.records import Run, point
from noisin.experiments.seeds import Mean

NUMBER = results.SYSTEMS[0].table
MISSING = "-"
KINDS = ("cache", "dynamic", "cache + dynamic")
HEADS = (
    *("model", "noisin train", "evaluated", "parameters", "counted", "paper dev", "paper test"),
    *("static dev", "static test", "evaluated dev", "evaluated test", "seeds", "epochs", "notes"),
)
OTHER_HEADS = (
    *("noisin train", "counted", "published dev", "published test", "dev", "test"),
    *(f"test, {kind}" for kind in KINDS),
    *("seeds", "epochs", "notes"),
)
LEGEND = (
    "parameters: as printed, in millions; counted: of our model, with the words of the "
    "authors' vocabulary. static: the model as trained, at its best epoch by validation; "
    "evaluated: by noisin evaluate RUN --cache, --dynamic or --method monte-carlo."
)
OTHER_LEGEND = (
    "counted: of our model, with the words of the authors' vocabulary. dev and test: the model as "
    "trained, at its best epoch by validation; the other columns: by noisin evaluate RUN --cache, "
    "--dynamic or both."
)
FIELDS = (
    *("table", "citation", "model", "recipe", "evaluation", "parameters", "counted"),
    *("paper_dev", "paper_test", "dev", "dev_std", "test", "test_std"),
    *("evaluated_dev", "evaluated_test", "test_cache", "test_dynamic", "test_cache_dynamic"),
    *("seeds", "fewest_epochs", "most_epochs", "notes", "runs"),
)


@dataclass(frozen=True)
class SystemLine:
    """A recipe of the zoo, the row of the table that it belongs to, if any, and our result."""

    recipe: SystemRecipe
    row: System | None
    evaluation: str
    result: Result

    def evaluated(self, kind: str, split: str) -> Mean | None:
        """The perplexity with what an evaluation used; None if a run was not evaluated so."""
        if kind == "static":
            return self.result.dev if split == "valid" else self.result.test
        found = [run.evaluated(split).get(kind) for run in self.result.runs]
        known = [value for value in found if value is not None]
        return Mean.of(known) if known and len(known) == len(found) else None


@dataclass(frozen=True)
class Lineup:
    """The lines of the table, those of the other recipes, and the runs that belong to none."""

    rows: tuple[SystemLine, ...]
    relatives: tuple[SystemLine, ...]
    others: tuple[Run, ...]


def line_up(runs: Iterable[Run]) -> Lineup:
    """Each recipe with its runs: those with its settings, on its text."""
    configs = {name: zoo.config(name) for name in zoo.RECIPES}
    names = {point(config): name for name, config in configs.items()}
    found: dict[str, list[Run]] = defaultdict(list)
    others = []
    for run in runs:
        name = names.get(run.point)
        if name is not None and run.text == DATASETS[configs[name].data.name].digest:
            found[name].append(run)
        else:
            others.append(run)

    def line(recipe: SystemRecipe, row: System | None, evaluation: str) -> SystemLine:
        limit = configs[recipe.name].train.epochs
        result = result_of(recipe.name, limit, found[recipe.name])
        return SystemLine(recipe, row, evaluation, result)

    def of_row(row: System) -> SystemLine:
        recipe, evaluation = zoo.of_row(row.citation)
        return line(recipe, row, evaluation)

    return Lineup(
        tuple(map(of_row, results.SYSTEMS)),
        tuple(line(r, None, "static") for r in zoo.SYSTEM_RECIPES.values() if not r.rows),
        tuple(others),
    )


def sheets(runs: Iterable[Run], every: bool = False) -> Iterator[Sheet]:
    """The paper's table next to ours, and the other recipes: see :func:`~.tables.shown_lines`."""
    lineup = line_up(runs)
    shown = shown_lines((*lineup.rows, *lineup.relatives), every)
    yield Sheet(
        f"Table {NUMBER}. Penn Treebank, the best of their time",
        HEADS,
        tuple(_row(line) for line in lineup.rows if line in shown),
        left=(0, 1, 2, len(HEADS) - 1),
    )
    yield Sheet(
        "Other recipes of systems, not in the paper",
        OTHER_HEADS,
        tuple(_relative(line) for line in lineup.relatives if line in shown),
        left=(0, len(OTHER_HEADS) - 1),
    )


def remarks(runs: Sequence[Run], every: bool = False) -> Iterator[str]:
    """Remarks on the numbers, the paper's errors, and what is known of each recipe.

    Only those on rows that :func:`sheets` shows.
    """
    found = line_up(runs)
    lines = (*found.rows, *found.relatives)
    shown = shown_lines(lines, every)
    rows = [line.row for line in shown if line.row is not None]
    yield LEGEND if rows else OTHER_LEGEND
    yield from (f"{row.model}: {row.note}" for row in rows if row.note)
    names = {line.recipe.name for line in shown}
    yield from (f"{r.name}: {r.note}" for r in zoo.SYSTEM_RECIPES.values() if r.name in names)
    if not every:
        yield from left_out(NUMBER, lines)
    if found.others:
        yield f"Other runs that belong to no system of this table: {len(found.others)}."
    if not runs:
        yield "There are no runs. To make one: noisin train ptb-small-awd"


def values(runs: Iterable[Run]) -> Iterator[tuple[object, ...]]:
    """The lines as numbers, with the :data:`FIELDS`."""
    lineup = line_up(runs)
    for line in (*lineup.rows, *lineup.relatives):
        row, result = line.row, line.result
        with_it = [line.evaluated(line.evaluation, split) for split in ("valid", "test")]
        others = [line.evaluated(kind, "test") for kind in KINDS]
        notes = (*((row.note,) if row is not None and row.note else ()), *_notes(line))
        yield (
            *((row.table, row.citation, row.model) if row else (None, None, None)),
            *(line.recipe.name, line.evaluation, row.parameters if row else None),
            line.recipe.parameters,
            *((row.dev, row.test) if row else line.recipe.published),
            *_mean_and_std(result.dev),
            *_mean_and_std(result.test),
            *(None if mean is None else mean.mean for mean in (*with_it, *others)),
            len(result.runs),
            *(result.epochs if result.runs else (None, None)),
            "; ".join(notes),
            "; ".join(run.name for run in result.runs),
        )


def _row(line: SystemLine) -> tuple[str, ...]:
    row = line.row
    assert row is not None
    evaluated = [line.evaluated(line.evaluation, split) for split in ("valid", "test")]
    return (
        (row.citation or "this paper") + " - " + row.model,
        line.recipe.name,
        line.evaluation,
        MISSING if row.parameters is None else f"{row.parameters:g} M",
        f"{line.recipe.parameters:,}",
        _number(row.dev),
        _number(row.test),
        *map(_number, (line.result.dev, line.result.test, *evaluated)),
        *_runs(line),
    )


def _relative(line: SystemLine) -> tuple[str, ...]:
    return (
        line.recipe.name,
        f"{line.recipe.parameters:,}",
        *map(_number, line.recipe.published),
        *map(_number, (line.result.dev, line.result.test)),
        *(_number(line.evaluated(kind, "test")) for kind in KINDS),
        *_runs(line),
    )


def _runs(line: SystemLine) -> tuple[str, str, str]:
    result = line.result
    fewest, most = result.epochs
    span = f"{fewest}" if fewest == most else f"{fewest}-{most}"
    seeds = str(len(result.runs)) if result.runs else MISSING
    return seeds, f"{span} of {result.limit}" if result.runs else MISSING, ", ".join(result.notes)


def _notes(line: SystemLine) -> tuple[str, ...]:
    return line.result.notes or (() if line.result.runs else ("missing",))


def _number(value: float | Mean | None) -> str:
    return MISSING if value is None else str(value)


def _mean_and_std(mean: Mean | None) -> tuple[float | None, float | None]:
    return (None, None) if mean is None else (mean.mean, mean.std)
