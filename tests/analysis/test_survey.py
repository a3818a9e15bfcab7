"""The table of unbiasedness in the docs is what the check finds."""

from __future__ import annotations

from pathlib import Path

from noisin.analysis import survey

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"


def test_the_table_is_what_theory_says_and_stands_in_the_docs() -> None:
    """Linear in the noise, given the state: weak. Not fed back, or affine, last layer: strong."""
    rows = survey.survey()
    alone = {row.regularizer: row.alone for row in rows}
    strong = {name for name, verdict in alone.items() if verdict == "no bias found"}
    weak = {name for name, verdict in alone.items() if verdict == "no weak bias found"}
    assert strong == {
        "noise, not fed back, last layer",
        "noise of a minGRU",
        "noise of a minGRU, output",
        "noise of a minGRU, state",
        "dropout of the output",
    }
    assert weak == {
        "noise, fed back",
        "noise, not fed back, all layers",
        "noise of a GRU",
        "noise of mean 0.8, evaluated with it",
        "dropout of updates, GRU",
        "zoneout, RNN",
        "zoneout, LSTM",
        "zoneout, GRU",
    }
    assert all(row.noisy in (None, "no weak bias found") for row in rows), "noise around any cell"
    assert survey.as_markdown(rows) in PAGE.read_text(encoding="utf-8")
