"""``noisin report``: a page about all runs of a folder."""

from __future__ import annotations

from pathlib import Path

from noisin._util.files import write_atomically
from noisin.cli.consoles import tell
from noisin.cli.progress import Display
from noisin.errors import InvalidValue
from noisin.experiments.collection import collect


def report(folder: Path = Path("runs"), /, *, out: Path | None = None) -> None:
    """Write a page about all runs of a folder: curves, tables, settings. It works offline.

    Needs matplotlib and jinja2: pip install 'noisin[report]'.

    Parameters
    ----------
    folder
        The folder to search for runs, at any depth.
    out
        The file to write, ending in .html; by default report.html in the folder.
    """
    path = folder / "report.html" if out is None else out
    if path.suffix not in {".html", ".htm"}:
        raise InvalidValue(f"--out must be a file ending in .html, got {path}.")
    runs = collect(folder, note=Display().note)
    from noisin.experiments.report.page import render

    page = render(runs, folder).encode(errors="backslashreplace")  # of names that are not text
    write_atomically(path, page)
    damaged = f"; records that cannot be used: {len(runs.damaged)}" if runs.damaged else ""
    tell(f"The report is in {path}. Runs: {len(runs)}{damaged}.")
