"""``noisin table``: a table of the paper beside ours."""

from __future__ import annotations

import sys
from pathlib import Path

from noisin.cli.arguments import WholeNumber
from noisin.experiments import sheets, tables
from noisin.experiments.collection import collect


def table(
    number: WholeNumber,
    /,
    *,
    runs: Path = Path("runs"),
    format: sheets.Format = "text",
) -> None:
    """Show a table of the paper beside the runs of its recipes.

    A run counts for a cell if it has the settings of its recipe, such as ptb-medium-gaussian, but
    for seed, limits and threads, and the text. What is missing is shown as missing.

    Parameters
    ----------
    number
        The paper's: 3 is Penn Treebank, 4 is WikiText-2, 5 other systems.
    runs
        The folder to search for runs, however deep.
    format
        For a terminal, or to go elsewhere. What there is to say beside CSV is on standard error.
    """
    tables.check_number(number)
    found = collect(runs)
    print(sheets.show(number, found, format))
    if format == "csv":
        for remark in sheets.remarks(number, found):
            print(f"noisin: {remark}", file=sys.stderr)
