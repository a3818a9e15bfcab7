"""``noisin table``: your own runs, or a table of the paper next to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from noisin.cli.arguments import Switch, WholeNumber
from noisin.cli.consoles import Messages, note, tell, width
from noisin.cli.progress import Display
from noisin.errors import InvalidValue
from noisin.experiments import overview
from noisin.experiments.collection import Collection, collect
from noisin.experiments.formats import Format
from noisin.experiments.paper import sheets, tables

RUNS = Path("runs")  # by default


def table(
    number: WholeNumber | None = None,
    /,
    *,
    runs: Path | None = None,
    format: Format = "text",
    against: str | None = None,
    every: Annotated[Switch, Parameter(name="--all")] = False,
) -> None:
    """Show a table of your own runs, or a table of the paper next to them.

    Without a number, each text and model is a table, and runs that differ in the seed alone are a
    row: mean ± sample standard deviation, and the difference on test from the best row, of runs
    with the same seed, with a 95 % interval.

    With a number, a run counts for a cell of the paper's table if its settings are those of the
    cell's recipe, such as ptb-medium-gaussian, except seed, limits and threads, and if it was
    trained on the same text.

    Parameters
    ----------
    number
        The number in the paper: 3 is Penn Treebank, 4 is WikiText-2, 5 other systems.
    runs
        The folder to search for runs, at any depth; by default runs.
    format
        The format. With csv, remarks go to standard error.
    against
        Of your own runs: the row that others are compared with, or a run of it, by name; by default
        the row with the lowest score on valid.
    every
        Of a table of the paper: also show the rows that have no run; works without any run.
    """
    if number is None:
        if every:
            raise InvalidValue("--all is for tables of the paper: noisin table 3 --all.")
        found = collect(runs or RUNS, note=Display().note)
        shown = overview.show(found, format, against=against, width=width())
        below = overview.remarks(found)
    else:
        tables.check_number(number)
        if against is not None:
            raise InvalidValue(
                f"--against is for your own runs, and table {number} compares them with the paper. "
                f"Leave out one of the two."
            )
        found = _found(runs, every)
        shown = sheets.show(number, found, format, every=every, width=width())
        below = sheets.remarks(number, found, every=True)  # CSV has all rows
    tell(shown)
    if format == "csv":
        messages = Messages()
        for remark in below:
            note(messages, remark)


def _found(runs: Path | None, every: bool) -> Collection:
    """The runs. The paper's own rows need none, where no folder was named."""
    if runs is None and every and not RUNS.exists():
        return Collection()
    return collect(runs or RUNS, note=Display().note)
