"""``noisin table``: a table of the paper beside ours."""

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
    """Show a table of the paper beside the runs of its recipes.

    A run counts for a cell if its settings are those of the cell's recipe, such as
    ptb-medium-gaussian, but for seed, limits and threads, and if it has read the same text.

    Parameters
    ----------
    number
        The paper's: 3 is Penn Treebank, 4 is WikiText-2, 5 other systems.
    runs
        The folder to search for runs, however deep.
    format
        How to show it. With csv, what there is to say beside goes to standard error.
    """
    tables.check_number(number)
    found = collect(runs, note=Display().note)
    tell(sheets.show(number, found, format))
    if format == "csv":
        messages = Messages()
        for remark in sheets.remarks(number, found):
            note(messages, remark)
