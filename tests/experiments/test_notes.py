"""The notes below the paper's tables: those on the rows that are shown, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from noisin.experiments.collection import collect
from noisin.experiments.paper import results, sheets
from tests.experiments.test_tables import write


def of_the_paper(folder: Path, number: int, every: bool = False) -> list[str]:
    """The remarks on numbers of the paper, without those on the table as a whole."""
    whole = {f"Of the paper: {note.text}" for note in results.NOTES if not note.rows}
    found = sheets.remarks(number, collect(folder), every)
    return [r for r in found if re.match("Of the paper|Dropout", r) and r not in whole]


def test_only_the_notes_on_the_rows_that_are_shown(tmp_path: Path) -> None:
    write(tmp_path / "a", "ptb-medium-gaussian")
    assert of_the_paper(tmp_path, 3) == []
    everything = of_the_paper(tmp_path, 3, every=True)
    assert len(everything) == 3
    assert not any("have no run" in r for r in sheets.remarks(3, collect(tmp_path), True))
    write(tmp_path / "b", "ptb-medium-dropout")
    chi, elsewhere = of_the_paper(tmp_path, 3)
    assert "Chi does not: 80.7 > 77.0" in chi
    assert "76.0 for the paper's 77.0 (medium). PyTorch's" in elsewhere
    write(tmp_path / "c", "wt2-medium-beta", text="wikitext-2")
    (bold,) = of_the_paper(tmp_path, 4)
    assert bold.startswith("Of the paper: Beta, medium, is in bold type")


def test_the_rows_of_the_notes_are_in_their_table() -> None:
    for note in results.NOTES:
        cells = {(cell.row, cell.size) for cell in results.CELLS if cell.table == note.table}
        assert cells.issuperset(note.rows)
