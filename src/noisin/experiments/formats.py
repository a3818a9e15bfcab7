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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from noisin._util.wording import printable

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


def text(sheet: Sheet) -> str:
    """Columns separated by two spaces."""
    lines = [[one_line(entry) for entry in row] for row in (sheet.heads, *sheet.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = []
    for line in lines:
        entries = [
            entry.ljust(width) if i in sheet.left else entry.rjust(width)
            for i, (entry, width) in enumerate(zip(line, widths, strict=True))
        ]
        shown.append("  ".join(entries).rstrip())
    return "\n".join([one_line(sheet.title), "", *shown])


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
