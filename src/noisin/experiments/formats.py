r"""Tables of text: aligned, or as Markdown, CSV or LaTeX, with all special characters escaped.

>>> sheet = Sheet("A title", ("method", "test"), (("D_1 | x", "71.8 ± 0.2"),))
>>> print(text(sheet))
A title
<BLANKLINE>
method         test
D_1 | x  71.8 ± 0.2
>>> print(latex(sheet).splitlines()[5])
D\_1 | x & 71.8 $\pm$ 0.2 \\
"""

from __future__ import annotations

import csv as library
import io
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal

from noisin._util.wording import printable

Format = Literal["text", "markdown", "csv", "latex"]
GAP = "  "
LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "×": r"$\times$",
        "−": "$-$",
        "–": "--",
        "γ": r"$\gamma$",
        "<": "$<$",
        ">": "$>$",
        "[": "{[}",  # at the start of a row, LaTeX would read it as an argument of the \\ before
        "*": "{*}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
    }
)
MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|#~&"})


@dataclass(frozen=True)
class Sheet:
    """A title, the heads of the columns, and rows of text. Columns in ``left`` are flush left."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: tuple[int, ...] = (0,)


def one_line(words: str) -> str:
    r"""Text on one line, without characters that control a terminal.

    >>> print(one_line("a\nb\x1b[31m"))
    a b\x1b[31m
    """
    return printable(" ".join(words.split()))


def document(
    sheets: Iterable[Sheet], remarks: Sequence[str], format: Format, width: int | None = None
) -> str:
    """Tables, and remarks below them, in a format other than CSV, which has numbers alone."""
    shown = [sheet for sheet in sheets if sheet.rows]
    if format == "text":
        lines = [_wrapped(one_line(remark), width, "  ") for remark in remarks]
        return "\n\n".join([*(text(sheet, width) for sheet in shown), "\n".join(lines)])
    if format == "markdown":
        items = "\n".join(f"- {in_markdown(remark)}" for remark in remarks)
        return "\n\n".join([*map(markdown, shown), items])
    lines = [f"{in_latex(remark)}\\par" for remark in remarks]
    note = "% needs \\usepackage{booktabs}"
    return "\n\n".join([note, *map(latex, shown), "\n".join(lines)])


def text(sheet: Sheet, width: int | None = None) -> str:
    """Columns separated by two spaces, in parts one below the other where they do not fit.

    >>> print(text(Sheet("A", ("method", "valid", "test"), (("noise", "71.8", "70.2"),)), 16))
    A
    <BLANKLINE>
    method  valid
    noise    71.8
    <BLANKLINE>
    method  test
    noise   70.2
    """
    parts = [sheet] if width is None else _parts(_folded(sheet, width // 2), width)
    title = _wrapped(one_line(sheet.title), width)
    return "\n\n".join([title, *map(_aligned, parts)])


def _wrapped(words: str, width: int | None, indent: str = "") -> str:
    if width is None:
        return words
    return textwrap.fill(
        words, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _lines(sheet: Sheet) -> list[list[str]]:
    return [[one_line(entry) for entry in row] for row in (sheet.heads, *sheet.rows)]


def _widths(sheet: Sheet) -> list[int]:
    return [max(map(len, column)) for column in zip(*_lines(sheet), strict=True)]


def _aligned(sheet: Sheet) -> str:
    widths = _widths(sheet)
    shown = []
    for line in _lines(sheet):
        entries = [
            entry.ljust(width) if i in sheet.left else entry.rjust(width)
            for i, (entry, width) in enumerate(zip(line, widths, strict=True))
        ]
        shown.append(GAP.join(entries).rstrip())
    return "\n".join(shown)


def _parts(sheet: Sheet, width: int) -> Iterator[Sheet]:
    """The same table with as many of its columns at a time as fit, each with the first column."""
    widths = _widths(sheet)
    chosen = [0]
    for i in range(1, len(widths)):
        taken = sum(widths[j] + len(GAP) for j in chosen) + widths[i]
        if taken > width and len(chosen) > 1:
            yield _columns(sheet, chosen)
            chosen = [0]
        chosen.append(i)
    yield _columns(sheet, chosen)


def _folded(sheet: Sheet, most: int) -> Sheet:
    """The same table with words of at most so many columns, on several lines where they have to."""
    rows: list[tuple[str, ...]] = []
    for row in sheet.rows:
        lines = [
            textwrap.wrap(one_line(entry), most) if i in sheet.left else [entry]
            for i, entry in enumerate(row)
        ]
        rows += zip_longest(*lines, fillvalue="")
    return replace(sheet, rows=tuple(rows))


def _columns(sheet: Sheet, chosen: Sequence[int]) -> Sheet:
    def of(row: Sequence[str]) -> tuple[str, ...]:
        return tuple(row[i] for i in chosen)

    left = tuple(place for place, i in enumerate(chosen) if i in sheet.left)
    return replace(sheet, heads=of(sheet.heads), rows=tuple(map(of, sheet.rows)), left=left)


def markdown(sheet: Sheet) -> str:
    """A table in GitHub's Markdown, below its title."""
    rule = [":--" if i in sheet.left else "--:" for i in range(len(sheet.heads))]
    rows = [[in_markdown(entry) for entry in row] for row in (sheet.heads, *sheet.rows)]
    lines = ["| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:])]
    return "\n".join([f"**{in_markdown(sheet.title)}**", "", *lines])


def in_markdown(words: str) -> str:
    """Text escaped for Markdown and for HTML within it."""
    return one_line(words).translate(MARKDOWN)


def latex(sheet: Sheet) -> str:
    """A ``tabular`` with the rules of booktabs, below its title."""
    columns = "".join("l" if i in sheet.left else "r" for i in range(len(sheet.heads)))
    rows = [" & ".join(in_latex(entry) for entry in row) + r" \\" for row in sheet.rows]
    return "\n".join(
        [
            rf"\textbf{{{in_latex(sheet.title)}}}\par",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(in_latex(head) for head in sheet.heads) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def in_latex(words: str) -> str:
    """Text escaped for LaTeX."""
    return one_line(words).translate(LATEX)


def csv(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Comma-separated values, quoted as in RFC 4180; None is empty, numbers have all digits."""
    return "\n".join(_csv_line(row) for row in (heads, *rows))


def _csv_line(values: Sequence[object]) -> str:
    file = io.StringIO()
    end = "\r\n"  # the writer quotes fields with these characters, and a name may contain both
    library.writer(file, lineterminator=end).writerow(values)
    return file.getvalue().removesuffix(end)
