"""Tables as text: the paper's numbers next to ours, followed by remarks on both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from noisin.experiments import formats, tags
from noisin.experiments.collection import Collection
from noisin.experiments.formats import Format, Sheet
from noisin.experiments.paper import lineup, recipes, results, tables
from noisin.experiments.paper.results import TableCell
from noisin.experiments.paper.tables import Comparison, TableLine
from noisin.experiments.records import Run
from noisin.experiments.seeds import Mean

MISSING = "-"
MOST = 10  # runs that are listed one by one
HEADS = (
    *("method", "gamma", "std", "paper dev", "paper test", "dev", "test", "difference"),
    *("seeds", "epochs", "notes"),
)
FIELDS = (
    *("table", "row", "size", "recipe", "gamma", "std", "paper_dev", "paper_test"),
    *("dev", "dev_std", "test", "test_std", "difference", "seeds", "fewest_epochs"),
    *("most_epochs", "notes", "runs"),
)
# How a row is marked that is not of the first reading of the paper's dropout.
MARKS: Mapping[recipes.Reading, str] = {
    "recurrent-dropout": "(recurrent)",
    "gate-dropout": "(gates)",
}
LEGEND = {
    tags.STILL_FALLING: "the best epoch of a run is its last one: it is unfinished.",
    tables.FEWER_EPOCHS: "than the recipe, and the paper, have at most.",
    tables.AVERAGED: "better on valid than the raw ones, each at its best epoch, so they count.",
    tags.NOT_SCORED: tags.MEANINGS[tags.NOT_SCORED],
    tags.NOT_COMPLETE: "stopped or still running. Such a run counts only if none is complete.",
    tags.DIVERGED: "the loss became non-finite; not counted.",
    tags.REPEATED: "another run of the same seed went as far or further, and stands for it.",
    MARKS["recurrent-dropout"]: "another reading of the paper's dropout: 0.4 on the state that is "
    "fed back.",
    MARKS["gate-dropout"]: "another reading of the paper's dropout: a mask on each product in the "
    "gates, 0.5 with the input and 0.4 with the state, as in its equations.",
}


def show(
    number: int,
    runs: Collection,
    format: Format = "text",
    *,
    every: bool = False,
    width: int | None = None,
) -> str:
    """A table of the paper next to ours, in a format. CSV contains only the numbers.

    Args:
        number: the number in the paper.
        runs: where ours come from.
        format: the format.
        every: whether to show the rows without a run, too; CSV has them all.
        width: the most columns of a line of text.
    """
    if format == "csv":
        return _csv(number, runs)
    below = remarks(number, runs, every)
    return formats.document(sheets(number, runs, every), below, format, width)


def remarks(number: int, runs: Collection, every: bool = False) -> list[str]:
    """Remarks on our numbers, on the paper's, and on runs that do not count.

    Only those on rows that :func:`sheets` shows.
    """
    tables.check_number(number)
    if number == lineup.NUMBER:
        found = [*lineup.remarks(runs, every), *_legend(lineup.sheets(runs, every))]
    else:
        comparison = tables.compare(number, runs)
        shown = [line.cell for line in tables.shown_lines(comparison.lines, every)]
        found = [*_of_ours(number, runs, every), *_of_the_paper(number, shown)]
        found += _others(comparison, bool(runs))
    return found + [f"{record.name} cannot be used: {record.reason}" for record in runs.damaged]


def sheets(number: int, runs: Collection, every: bool = False) -> Iterator[Sheet]:
    """The parts of a table of the paper next to ours, one for each size of the model."""
    tables.check_number(number)
    if number == lineup.NUMBER:
        yield from lineup.sheets(runs, every)
        return
    comparison = tables.compare(number, runs)
    lines = tables.shown_lines(comparison.lines, every)
    short = next(k for k, name in recipes.CORPORA.items() if name == comparison.corpus)
    for size, units in results.HIDDEN_SIZES.items():
        title = (
            f"Table {number}. {results.TITLES[comparison.corpus]}, {size}: LSTM of 2 × {units} "
            f"units. Each row is noisin train {short}-{size}[-DROPOUT][-NOISE]"
        )
        rows = tuple(_row(line) for line in lines if line.cell.size == size)
        yield Sheet(title, HEADS, rows, left=(0, len(HEADS) - 1))


def _row(line: TableLine) -> tuple[str, ...]:
    cell, result = line.cell, line.result
    fewest, most = result.epochs
    span = f"{fewest}" if fewest == most else f"{fewest}-{most}"
    return (
        cell.row + _mark(line),
        "" if cell.gamma is None else f"{cell.gamma:.2f}",
        "" if cell.std is None else f"{cell.std:.2f}",
        str(cell.dev),
        str(cell.test),
        _perplexity(result.dev),
        _perplexity(result.test),
        MISSING if line.difference is None else f"{line.difference:+.1f}",
        str(len(result.runs)) if result.runs else MISSING,
        f"{span} of {result.limit}" if result.runs else MISSING,
        ", ".join(result.notes),
    )


def _notes(line: TableLine) -> tuple[str, ...]:
    return line.result.notes or (() if line.result.runs else ("missing",))


def _perplexity(mean: Mean | None) -> str:
    return MISSING if mean is None else str(mean)


def _mark(line: TableLine) -> str:
    if not line.cell.dropout:
        return ""
    marks = {recipes.name_of(line.cell, reading): f" {mark}" for reading, mark in MARKS.items()}
    return marks.get(line.result.recipe, "")


def _of_ours(number: int, runs: Collection, every: bool) -> Iterator[str]:
    yield (
        "Ours are at the best epoch by validation; ± is the sample standard deviation over seeds, "
        "and the difference is our test minus the paper's."
    )
    yield from _legend(sheets(number, runs, every))
    if not every:
        yield from tables.left_out(number, tables.compare(number, runs).lines)


def _legend(shown: Iterable[Sheet]) -> Iterator[str]:
    entries = " ".join(entry for sheet in shown for row in sheet.rows for entry in row)
    yield from (f"{words}: {meaning}" for words, meaning in LEGEND.items() if words in entries)


def _of_the_paper(number: int, shown: Sequence[TableCell]) -> Iterator[str]:
    """Where it contradicts itself, and how its LSTM with dropout did elsewhere."""
    known = {(cell.row, cell.size) for cell in shown}
    for note in results.NOTES:
        if note.table == number and (not note.rows or known.intersection(note.rows)):
            yield f"Of the paper: {note.text}"
    for found in results.BASELINES:
        if found.table != number:
            continue
        cells = [
            cell for cell in results.CELLS if cell.table == number and cell.row == "Dropout (D)"
        ]
        pairs = [pair for pair in zip(found.test, cells, strict=True) if pair[1] in shown]
        beside = [f"{test:.1f} for the paper's {cell.test} ({cell.size})" for test, cell in pairs]
        if beside:
            yield f"Dropout (D) elsewhere: {' and '.join(beside)}. {found.source}."


def _others(comparison: Comparison, any_run: bool) -> Iterator[str]:
    """The runs that belong to no cell; for those of the table's text, the reason."""
    if not any_run:
        yield "There are no runs. To make one: noisin train ptb-medium-gaussian"
    here = [run for run in comparison.others if run.config.data.name == comparison.corpus]
    for run in here[:MOST]:
        yield f"{run.name} belongs to no cell: {_reason(run, comparison.number)}"
    rest = len(comparison.others) - len(here[:MOST])
    if rest:
        yield f"Other runs that belong to no cell of this table: {rest}."


def _reason(run: Run, number: int) -> str:
    recipe, differences = tables.nearest(run, number)
    if differences:
        return f"against {recipe}, {'; '.join(differences)}."
    return f"its settings are those of {recipe}, but its text is another one."


def _csv(number: int, runs: Collection) -> str:
    tables.check_number(number)
    if number == lineup.NUMBER:
        return formats.csv(lineup.FIELDS, lineup.values(runs))
    return formats.csv(FIELDS, map(_values, tables.compare(number, runs).lines))


def _values(line: TableLine) -> tuple[object, ...]:
    cell, result = line.cell, line.result
    dev, test = result.dev, result.test
    return (
        *(cell.table, cell.row, cell.size, result.recipe, cell.gamma, cell.std),
        *(cell.dev, cell.test),
        *((None, None) if dev is None else (dev.mean, dev.std)),
        *((None, None) if test is None else (test.mean, test.std)),
        line.difference,
        len(result.runs),
        *(result.epochs if result.runs else (None, None)),
        "; ".join(_notes(line)),
        "; ".join(run.name for run in result.runs),
    )
