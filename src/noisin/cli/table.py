"""``noisin table``: a table of the paper next to ours."""

from __future__ import annotations

from pathlib import Path

from noisin.cli.arguments import WholeNumber
from noisin.cli.consoles import Messages, note, tell
from noisin.cli.progress import Display
from noisin.experiments.collection import collect
from noisin.experiments.paper import sheets, tables


def table(
    number: WholeNumber,
    /,
    *,
    runs: Path = Path("runs"),
    format: sheets.Format = "text",
) -> None:
    """Show a table of the paper next to the runs of its recipes.

    A run counts for a cell if its settings are those of the cell's recipe, such as
    ptb-medium-gaussian, except seed, limits and threads, and if it was trained on the same text.

    Parameters
    ----------
    number
        The number in the paper: 3 is Penn Treebank, 4 is WikiText-2, 5 other systems.
    runs
        The folder to search for runs, at any depth.
    format
        The format. With csv, remarks go to standard error.
    """
    tables.check_number(number)
    found = collect(runs, note=Display().note)
    tell(sheets.show(number, found, format))
    if format == "csv":
        messages = Messages()
        for remark in sheets.remarks(number, found):
            note(messages, remark)
