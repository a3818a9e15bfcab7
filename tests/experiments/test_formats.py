"""Tables of text: whatever stands in them comes out as it went in."""

from __future__ import annotations

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from noisin._util.wording import printable
from noisin.experiments import formats
from noisin.experiments.formats import Sheet

NASTY = [
    *("<script>alert(1)</script>", "a|b", "a\\|b", "*x*", "_x_", "`x`", "[x](y)", "# x", "&amp;"),
    *(
        "50 %",
        "$x$",
        "{x}",
        "\\input{x}",
        "a & b",
        "a ~ b ^ c",
        'say "x", y',
        "a\nb",
        "x\ty",
        "=1+1",
    ),
    *("\x1b[31m", "", " ", "é", "漢", "±", "~~x~~", "![x](y)", "<!-- x -->", "\\", "\\\\", "#"),
]
TEXTS = st.one_of(st.sampled_from(NASTY), st.text(max_size=20))
ROWS = st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=4).map(tuple)


def sheet(rows: tuple[tuple[str, ...], ...]) -> Sheet:
    return Sheet("Table <3> & *more*", ("a", "b_2", "c | d"), rows, left=(0, 2))


@given(rows=ROWS)
def test_markdown_is_read_back(rows: tuple[tuple[str, ...], ...]) -> None:
    """By a parser of Markdown, with HTML allowed: every entry is one piece of plain text."""
    page = formats.markdown(sheet(rows))
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(page)
    entries = [token for token in tokens if token.type == "inline"]
    assert all(child.type == "text" for token in entries[1:] for child in token.children or [])
    read = ["".join(child.content for child in token.children or []) for token in entries]
    expected = ["Table <3> & *more*", "a", "b_2", "c | d", *(e for row in rows for e in row)]
    assert read == [formats.one_line(entry) for entry in expected]


@given(rows=ROWS)
def test_csv_is_read_back(rows: tuple[tuple[str, ...], ...]) -> None:
    content = formats.csv(("a", "b", "c"), rows) + "\n"
    assert list(csv.reader(io.StringIO(content, newline=""), strict=True)) == [
        ["a", "b", "c"],
        *map(list, rows),
    ]


def test_csv_of_numbers() -> None:
    assert formats.csv(("x", "y"), [(None, 0.1 + 0.2), (float("inf"), "a,b")]) == (
        'x,y\n,0.30000000000000004\ninf,"a,b"'
    )


COMMANDS = (
    r"\\textbackslash\{\}|\\textasciitilde\{\}|\\textasciicircum\{\}|\\[&%$#_{}]"
    r"|\$\\(?:pm|times|gamma)\$|\$[-<>]\$|--|\{\[\}|\{\*\}"
)


@given(rows=ROWS)
def test_latex_holds_nothing_that_acts(rows: tuple[tuple[str, ...], ...]) -> None:
    """Beside what we put there, no character that LaTeX reads as more than itself."""
    lines = formats.latex(sheet(rows)).split("\n")
    first, last = lines.index(r"\midrule") + 1, lines.index(r"\bottomrule")
    assert last - first == len(rows), "a row is a line"
    for line in lines[first:last]:
        entries = line.removesuffix(r" \\").split(" & ")
        assert len(entries) == 3
        for entry in entries:
            assert not re.search(r"[\\&%$#_{}~^<>[*]", re.sub(COMMANDS, "", entry)), entry


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("a_b & 5 %", r"a\_b \& 5 \%"),
        ("\\x{1}", r"\textbackslash{}x\{1\}"),
        ("1 ± 2", r"1 $\pm$ 2"),
    ],
)
def test_latex(words: str, shown: str) -> None:
    assert formats.in_latex(words) == shown


@given(rows=ROWS)
def test_text_is_aligned(rows: tuple[tuple[str, ...], ...]) -> None:
    title, blank, *lines = formats.text(sheet(rows)).split("\n")
    assert (title, blank) == ("Table <3> & *more*", "")
    assert len(lines) == 1 + len(rows)
    assert all(printable(line) == line for line in lines)
    widths = [
        max(len(formats.one_line(row[i])) for row in (("a", "b_2", "c | d"), *rows)) for i in (0, 1)
    ]
    for line, row in zip(lines[1:], rows, strict=True):
        padded = line.ljust(200)
        assert padded[: widths[0]].rstrip() == formats.one_line(row[0]).rstrip()
        assert padded[widths[0] + 2 :][: widths[1]].lstrip() == formats.one_line(row[1]).lstrip()


def test_text_of_a_narrow_terminal() -> None:
    """Words are folded, columns that do not fit stand below, and nothing is lost."""
    words = "a name of many words that is far too long"
    sheet = Sheet("T", ("name", "valid", "test", "notes"), ((words, "1.5", "2.5", words),), (0, 3))
    shown = formats.text(sheet, 30)
    assert max(map(len, shown.splitlines())) <= 30
    for head in sheet.heads:
        assert head in shown
    first = [line[:15].strip() for line in shown.splitlines() if line[:15].strip()]
    assert words in " ".join(first)
    assert formats.text(sheet, 200) == formats.text(sheet)
