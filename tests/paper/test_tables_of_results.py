"""The paper's results as data: each number that it prints is there, and no other.

Its source is not part of this repository. Where it lies beside the data, at
``$NOISIN_DATA/../paper/noisin.tex``, it is read and compared; else those tests are skipped.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from noisin import noise
from noisin.errors import InvalidValue
from noisin.experiments.paper import results
from noisin.experiments.paper.results import CELLS, CLAIMS, NOTES, SYSTEMS, TableCell
from noisin.noise import ranges

NUMBER = r"-?\d+(?:\.\d+)?"


@pytest.fixture(scope="module")
def source() -> str:
    data = os.environ.get("NOISIN_DATA")
    path = Path(data or "/nowhere").parent / "paper" / "noisin.tex"
    if not path.exists():
        pytest.skip(f"the paper's source is not at $NOISIN_DATA/../paper/noisin.tex ({path})")
    return path.read_text(encoding="utf-8")


def environment(source: str, label: str) -> str:
    """The table that bears a label."""
    tables = re.findall(r"\\begin\{table\*\}.*?\\end\{table\*\}", source, re.DOTALL)
    (found,) = (table for table in tables if rf"\label{{{label}}}" in table)
    return found


def rows(table: str) -> Iterator[list[str]]:
    """The entries of each row of numbers, as printed but for ``$``."""
    for body in re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}", table, re.DOTALL):
        for line in body.split(r"\\"):
            entries = [entry.strip().replace("$", "") for entry in line.split("&")]
            entries[0] = re.sub(r"^(\\\w*rule\s*)+", "", entries[0]).strip()
            if len(entries) > 1 and re.search(r"\d", line) and "multicolumn" not in line:
                yield entries


def value(entry: str) -> float | None:
    entry = re.sub(r"\\textbf\{(.*)\}", r"\1", entry).removesuffix(" M")
    if set(entry) == {"-"}:
        return None
    assert re.fullmatch(NUMBER, entry), entry
    return float(entry)


@pytest.mark.parametrize(("number", "label"), [(3, "tab:pp_ptb"), (4, "tab:pp_wiki")])
def test_every_number_of_the_tables_of_perplexities(number: int, label: str, source: str) -> None:
    printed = {}
    for row, *entries in rows(environment(source, label)):
        assert len(entries) == 6
        printed[row, "medium"], printed[row, "large"] = entries[:3], entries[3:]
    ours = {(c.row, c.size): (c.gamma, c.dev, c.test) for c in CELLS if c.table == number}
    assert ours == {key: tuple(map(value, entries)) for key, entries in printed.items()}
    assert len(ours) == 36
    for (row, size), (_, *perplexities) in printed.items():
        (cell,) = (c for c in CELLS if (c.table, c.row, c.size) == (number, row, size))
        digits = [re.sub(r"[^\d.]", "", entry) for entry in perplexities]
        assert [str(cell.dev), str(cell.test)] == digits, "with as many digits"


def test_the_rows_are_read_as_they_are_named() -> None:
    for cell in CELLS:
        assert cell.dropout == cell.row.startswith("D")
        assert (
            (cell.family is None) == (cell.gamma is None) == (cell.row in ("None", "Dropout (D)"))
        )
        if cell.family is not None:
            assert cell.row.split()[-1].lower() == cell.family.removesuffix("-square")
        assert (cell.table == 3) == (cell.corpus == "ptb")


def test_every_number_of_the_last_table(source: str) -> None:
    printed = []
    for first, *entries in rows(environment(source, "tab:pp_ptb_sota")):
        cited = re.match(r"\\cite\{(\w+)\}|\(This paper\)", first)
        assert cited is not None
        model = re.sub(r"\\[Gg]ls\{(\w+)\}", lambda m: m[1].upper(), first[cited.end() :])
        model = re.sub(r"\^\*|\s+", " ", model).strip(" -")
        printed.append((cited[1], " ".join(model.split()), *map(value, entries)))
    ours = [(s.citation, s.model, s.parameters, s.dev, s.test) for s in SYSTEMS]
    assert ours == printed
    assert {s.table for s in SYSTEMS} == {5}


def test_what_the_last_caption_says_of_the_noise(source: str) -> None:
    caption = environment(source, "tab:pp_ptb_sota").split(r"\begin{tabular}")[0]
    numbers = re.findall(rf"\$({NUMBER})\$", caption)
    assert re.findall(NUMBER, SYSTEMS[-1].note) == numbers == ["400", "1000", "2", "0.4"]


def test_the_copied_errors_are_noted() -> None:
    noted = {s.citation: s.note for s in SYSTEMS if "error" in s.note}
    assert noted.keys() == {"melis2017state", "inan2016tying"}
    assert "62.1 and 59.6" in noted["melis2017state"]
    assert "14 M" in noted["inan2016tying"]


def percentages(text: str) -> set[float]:
    return {float(p) for p in re.findall(rf"({NUMBER}) ?\$?\\%", text)}


def test_every_percentage_of_the_text(source: str) -> None:
    """Those of the captions are the same ones, rounded down."""
    printed = percentages(source)
    stated = {claim.percent for claim in CLAIMS}
    assert printed == stated | {float(math.floor(p)) for p in (12.2, 9.4)}


def test_which_percentages_stand_where(source: str) -> None:
    """The introduction has all four; the abstract has those over dropout alone."""
    abstract, rest = source.split(r"\begin{abstract}")[1].split(r"\end{abstract}")
    introduction = rest.split(r"\begin{figure}")[0]
    assert percentages(introduction) == {claim.percent for claim in CLAIMS}
    assert percentages(abstract) == {c.percent for c in CLAIMS if c.worse.dropout} == {12.2, 9.4}


def test_three_of_four_percentages_compare_a_large_model_with_a_medium_one() -> None:
    for claim in CLAIMS:
        assert round(results.gain(claim.better, claim.worse), 1) == claim.percent
    assert [claim.like_with_like for claim in CLAIMS] == [False, False, True, False]


def test_gains_like_with_like() -> None:
    gains = {
        (corpus, dropout): tuple(
            round(results.best_gain(corpus, size, dropout), 1) for size in results.HIDDEN_SIZES
        )
        for corpus in results.TITLES
        for dropout in (False, True)
    }
    assert gains == {
        ("ptb", False): (34.5, 44.5),
        ("ptb", True): (10.1, 12.2),
        ("wikitext-2", False): (36.3, 40.8),
        ("wikitext-2", True): (3.2, 15.6),
    }


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.text[:40])
def test_the_notes_quote_the_tables(note: results.PaperNote) -> None:
    """Each "a > b" holds of two perplexities of the table, and each percentage is a gain."""
    cells = [cell for cell in CELLS if cell.table == note.table]
    perplexities = {str(p) for cell in cells for p in (cell.dev, cell.test)}
    for above, below in re.findall(rf"({NUMBER}) > ({NUMBER})", note.text):
        assert {above, below} <= perplexities
        assert float(above) > float(below)
    gains = {
        f"{results.best_gain(cells[0].corpus, size, dropout):.1f}"
        for size in results.HIDDEN_SIZES
        for dropout in (False, True)
    } | {str(claim.percent) for claim in CLAIMS}
    assert set(re.findall(r"(\d+\.\d) %", note.text)) <= gains


def column(table: int, size: str, dropout: bool) -> list[TableCell]:
    return [c for c in CELLS if (c.table, c.size, c.dropout) == (table, size, dropout)]


def test_the_notes_are_true() -> None:
    """What they say beyond the numbers they quote, from the cells."""
    for size in ("medium", "large"):
        noises, (dropout, *_) = column(3, size, False)[1:], column(3, size, True)
        assert [c.row for c in noises if c.test > dropout.test] == ["Chi"]
    noises, (dropout, *both) = column(4, "medium", False)[1:], column(4, "medium", True)
    assert min(c.test for c in noises) > dropout.test
    assert [c.row for c in both if c.test > dropout.test] == ["D + Bernoulli", "D + Chi"]
    stds = {c.row: c.std or 0 for c in both}
    assert stds.pop("D + Bernoulli") == 1
    assert 0.3 <= min(stds.values()) < max(stds.values()) <= 0.5
    ratios = sorted(cell.dev / cell.test for cell in CELLS)
    assert ratios[-1] > 1.25
    assert ratios[-2] < 1.07
    assert ratios[0] >= 1


def test_the_notes_on_bold_type(source: str) -> None:
    """Bold is the least of its column, but where a note says otherwise."""
    odd = set()
    for number, label in ((3, "tab:pp_ptb"), (4, "tab:pp_wiki")):
        for row, *entries in rows(environment(source, label)):
            for i, (size, split) in {
                1: ("medium", "dev"),
                2: ("medium", "test"),
                4: ("large", "dev"),
                5: ("large", "test"),
            }.items():
                least = min(getattr(c, split) for c in column(number, size, row.startswith("D")))
                if "textbf" in entries[i] and value(entries[i]) != least:
                    odd.add((number, row, size, split))
    assert odd == {
        (3, "D + Gaussian", "large", "dev"),
        (3, "D + Bernoulli", "large", "dev"),
        (4, "Beta", "medium", "test"),
    }


def test_std() -> None:
    """Of a cell, and of a law by its name alone, as the noise itself has it."""
    for cell in CELLS:
        if cell.family is None:
            assert cell.std is None
        else:
            assert cell.std == noise.FAMILIES[cell.family](cell.gamma).std
    for law in ranges.RANGES:
        for gamma in (0.1, 0.33, 1.0):
            assert ranges.std(law, gamma) == getattr(noise, law)(gamma).std


def test_a_cell_that_is_not_there() -> None:
    assert all(
        results.cell(c.corpus, c.size, dropout=c.dropout, family=c.family) is c for c in CELLS
    )
    with pytest.raises(InvalidValue, match="no such cell: corpus='ptb', size='small'"):
        results.cell("ptb", "small")
