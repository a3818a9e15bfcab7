"""The paper's tables next to ours, from the records of runs.

A run counts for a cell if its settings are those of the cell's recipe, except for what does not
change the model and its training (the seed, the device, the number of threads, the limits), and if
it was trained on the same text. Perplexities are those of the best epoch on valid; several seeds
are shown as their mean and sample standard deviation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from noisin.data.datasets import DATASETS
from noisin.errors import InvalidValue
from noisin.experiments.paper import recipes, results
from noisin.experiments.paper.results import TableCell
from noisin.experiments.records import Run, comparable, point
from noisin.experiments.seeds import Mean, longest_of_each_seed
from noisin.experiments.tags import (
    DIVERGED,
    NOT_COMPLETE,
    NOT_SCORED,
    REPEATED,
    STILL_FALLING,
)

WITHOUT_PERPLEXITIES = {
    1: "Table 1 lists log-normalisers: noisin.likelihoods has them, and noisin verify checks them.",
    2: "Table 2 lists noises: noisin.noise has them, and noisin verify checks them.",
}
FEWER_EPOCHS, AVERAGED = "fewer epochs", "averaged weights"


@dataclass(frozen=True)
class Result:
    """The result of the runs of a recipe.

    Attributes:
        recipe: its name.
        runs: the runs that count, one for each seed.
        dev, test: perplexities at the best epoch; None if not known.
        epochs: the smallest and the largest number of epochs of a run.
        limit: the number of epochs of the recipe.
        notes: what to know before comparing.
    """

    recipe: str
    runs: tuple[Run, ...] = ()
    dev: Mean | None = None
    test: Mean | None = None
    epochs: tuple[int, int] = (0, 0)
    limit: int = 0
    notes: tuple[str, ...] = ()

    @property
    def has_runs(self) -> bool:
        """Whether there is a run of the recipe, even one that does not count."""
        return bool(self.runs or self.notes)


@dataclass(frozen=True)
class TableLine:
    """A cell of the paper, and our result."""

    cell: TableCell
    result: Result

    @property
    def difference(self) -> float | None:
        """Our test perplexity minus the paper's."""
        return None if self.result.test is None else self.result.test.mean - self.cell.test


@dataclass(frozen=True)
class Comparison:
    """A table of perplexities: its lines, and the runs that belong to none of them."""

    number: int
    lines: tuple[TableLine, ...]
    others: tuple[Run, ...]

    @property
    def corpus(self) -> results.CorpusName:
        """The text that the table is about."""
        return self.lines[0].cell.corpus


def check_number(number: int) -> None:
    """Refuse the number of a table that does not exist or has no perplexities."""
    tables = sorted({cell.table for cell in results.CELLS} | {row.table for row in results.SYSTEMS})
    if number not in tables:
        why = WITHOUT_PERPLEXITIES.get(number, f"The paper has no table {number}.")
        raise InvalidValue(
            f"{why} Those of perplexities are {', '.join(map(str, tables[:-1]))} and {tables[-1]}."
        )


def compare(number: int, runs: Iterable[Run]) -> Comparison:
    """A table of perplexities, each cell with the runs of its recipe."""
    cells = [cell for cell in results.CELLS if cell.table == number]
    corpus = cells[0].corpus
    alike: dict[str, list[Run]] = defaultdict(list)
    others = []
    wanted = {point(recipes.config(name)) for cell in cells for name in _names(cell)}
    for run in runs:
        if run.point in wanted and run.text == DATASETS[corpus].digest:
            alike[run.point].append(run)
        else:
            others.append(run)
    lines = tuple(line for cell in cells for line in _lines(cell, alike))
    return Comparison(number, lines, tuple(others))


def nearest(run: Run, number: int) -> tuple[str, list[str]]:
    """The recipe of a table that is closest to a run, and the differences."""
    mine = comparable(run.config)
    names = [name for cell in results.CELLS if cell.table == number for name in _names(cell)]
    differences = {name: mine.differences(comparable(recipes.config(name))) for name in names}
    return min(differences.items(), key=lambda item: len(item[1]))


def _names(cell: TableCell) -> Iterator[str]:
    """The recipes of a cell: one per reading where it has dropout, which the paper leaves open."""
    for reading in recipes.READINGS:
        if cell.dropout or reading == "dropout":
            yield recipes.name_of(cell, reading)


def _lines(cell: TableCell, alike: Mapping[str, list[Run]]) -> Iterator[TableLine]:
    """One for the recipe, and one for each other reading that has runs."""
    for i, name in enumerate(_names(cell)):
        config = recipes.config(name)
        found = alike.get(point(config), [])
        if found or i == 0:
            yield TableLine(cell, result_of(name, config.train.epochs, found))


class _HasResult(Protocol):
    @property
    def result(self) -> Result: ...


_Line = TypeVar("_Line", bound=_HasResult)


def shown_lines(lines: Iterable[_Line], every: bool) -> list[_Line]:
    """The lines that have runs; or ``every`` line, as also where there is no run at all."""
    known = list(lines)
    made = [line for line in known if line.result.has_runs]
    return known if every or not made else made


def left_out(number: int, lines: Sequence[_HasResult]) -> Iterator[str]:
    """A remark on the lines of a table that have no run, where others have."""
    without = sum(not line.result.has_runs for line in lines)
    if 0 < without < len(lines):
        yield (
            f"{without} of the {len(lines)} rows have no run: noisin table {number} --all shows "
            f"them."
        )


def result_of(recipe: str, limit: int, runs: Sequence[Run]) -> Result:
    """The result of complete runs, or else of unfinished ones, which have no test perplexity."""
    diverged = [run for run in runs if run.diverged is not None and not run.complete]
    begun = [run for run in runs if run.metrics and run not in diverged]
    chosen = longest_of_each_seed(begun)
    complete = [run for run in chosen if run.complete]
    counted = complete or chosen
    words = {
        NOT_COMPLETE: len(runs) - len(diverged) - len(begun) + len(chosen) - len(complete),
        DIVERGED: len(diverged),
        REPEATED: len(begun) - len(chosen),
    }
    notes = [f"{n} {word}" for word, n in words.items() if n]
    if not counted:
        return Result(recipe, limit=limit, notes=tuple(notes))
    epochs = [len(run.metrics) for run in counted]
    if any(run.unfinished for run in counted):
        notes.append(STILL_FALLING)
    if any(run.best is not None and run.best["weights"] == "averaged" for run in counted):
        notes.append(AVERAGED)
    if any(run.not_scored for run in counted):
        notes.append(NOT_SCORED)
    if min(epochs) < limit:
        notes.append(FEWER_EPOCHS)
    return Result(
        recipe,
        tuple(counted),
        _mean(counted, "best_valid"),
        _mean(counted, "test") if complete else None,
        (min(epochs), max(epochs)),
        limit,
        tuple(notes),
    )


def _mean(runs: Sequence[Run], name: str) -> Mean | None:
    """The mean of a perplexity at the best epoch; None if a run did not measure it."""
    values = [run.best[name] for run in runs if run.best is not None]
    return None if None in values else Mean.of(values)
