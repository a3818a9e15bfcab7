"""The table of unbiasedness in the docs is what the check finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from noisin.analysis import survey

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"


@pytest.fixture(scope="module")
def rows() -> list[survey.Surveyed]:
    return survey.survey()


def test_theory_agrees(rows: list[survey.Surveyed]) -> None:
    """Linear in the noise, given the state: weak. Not fed back, on the last layer: strong."""
    alone = {row.regularizer: row.alone for row in rows}
    strong = {name for name, verdict in alone.items() if verdict == "strongly unbiased"}
    weak = {name for name, verdict in alone.items() if verdict == "weakly unbiased"}
    assert strong == {"noise, not fed back, last layer", "dropout of the output"}
    assert weak == {
        "noise, fed back",
        "noise, not fed back, all layers",
        "noise of a GRU",
        "dropout of updates, GRU",
        "zoneout, RNN",
        "zoneout, LSTM",
    }
    assert all(row.noisy in (None, "weakly unbiased") for row in rows), "noise around any cell"


def test_the_table_in_the_docs(rows: list[survey.Surveyed]) -> None:
    if not PAGE.exists():
        pytest.skip(f"{PAGE} is not written yet")
    assert survey.as_markdown(rows) in PAGE.read_text(encoding="utf-8")
