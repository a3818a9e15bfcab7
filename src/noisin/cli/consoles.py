"""Where commands print: results to standard output, the rest to standard error, as plain text.

Whatever is printed, no name or word of a file steers the terminal (see
:mod:`noisin._util.wording`), and a character that the terminal does not know has a stand-in.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions, JustifyMethod
from rich.segment import Segment
from rich.table import Table

from noisin._util.wording import message, printable

NARROWEST, WIDEST = 40, 1000  # columns; with a single one, rich does not terminate
NARROWEST_COLUMN = 12  # of a table, where it is folded
STAND_INS = {
    "±": "+-", "×": "x", "·": "*", "−": "-", "–": "-", "…": "...", "→": "->", "≠": "!=",
    "½": "1/2", "²": "^2", "³": "^3", "⁶": "^6", "ᵀ": "^T", "γ": "gamma", "σ": "sigma",
}  # fmt: skip


def prepare() -> None:
    """Make the standard streams print any text, and ignore invalid terminal sizes."""
    codecs.register_error("noisin", _stand_in)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="noisin")
    for name in ("COLUMNS", "LINES"):
        if not re.fullmatch("[1-9][0-9]{0,8}", os.environ.get(name, "80")):
            del os.environ[name]  # rich accepts "²" as a number, and 0 as a width


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    """The replacement for characters that an ASCII or Latin-1 terminal cannot show."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    unknown = error.object[error.start : error.end]
    return "".join(STAND_INS.get(character, "?") for character in unknown), error.end


def tell(text: str) -> None:
    """Print a result."""
    print(printable(text))


def tell_sentences(text: str) -> None:
    """Print a result in words, which are not broken where a line of the terminal ends."""
    tell("\n".join(wrapped(line, width()) for line in text.split("\n")))


def wrapped(text: str, columns: int | None) -> str:
    """Words broken into indented lines of at most so many columns; None is no limit."""
    if columns is None:
        return text
    return textwrap.fill(
        text, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def note(console: Console, told: str) -> None:
    """Print a message to the user."""
    console.print(f"noisin: {message(told)}", soft_wrap=True)


class _Plain(Console):
    """A console of bounded width that escapes control characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    @property
    def size(self) -> ConsoleDimensions:
        """Columns and lines."""
        width, height = super().size
        return ConsoleDimensions(min(max(width, NARROWEST), WIDEST), height)

    @size.setter
    def size(self, size: tuple[int, int]) -> None:
        self._width, self._height = size

    def render(self, *given: Any, **options: Any) -> Iterable[Segment]:
        """Like rich's method, but everything that is not markup of rich is made printable."""
        for text, style, control in super().render(*given, **options):
            yield Segment(text if control else printable(text), style, control)


class Results(_Plain):
    """Standard output. The caller handles a reader, such as head, that stops reading."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise the error: rich would end the process."""
        raise BrokenPipeError


class Messages(_Plain):
    """Standard error. The work continues if nobody reads it."""

    def __init__(self) -> None:
        super().__init__(stderr=True)

    def on_broken_pipe(self) -> None:
        """Print nothing more, neither now nor when the process ends."""
        self.quiet = True
        silence(sys.stderr.fileno())


def new_table(*heads: str, left: Sequence[int] = (0,)) -> Table:
    """An empty table. Columns in ``left`` are flush left, and fold where the terminal is narrow.

    Numbers are in the others, which are neither folded nor cut.
    """
    table = Table(box=None, pad_edge=False)
    for i, head in enumerate(heads):
        flush_left = i in left
        justify: JustifyMethod = "left" if flush_left else "right"
        table.add_column(head, justify=justify, no_wrap=not flush_left, overflow="fold")
    return table


def show_table(table: Table) -> None:
    """Print a table, on a terminal in its width, elsewhere in lines as long as they have to be."""
    console = Results()
    least = 0
    for column in table.columns:
        longest = max(cell_len(str(cell)) for cell in (column.header, *column.cells))
        column.min_width = longest if column.no_wrap else min(longest, NARROWEST_COLUMN)
        least += column.min_width + 2
    console.width = max(width() or WIDEST, least)
    console.print(table)


def width() -> int | None:
    """The columns of the terminal that results are printed on, or of COLUMNS; else None."""
    console = Results()
    return console.width if console.is_terminal or "COLUMNS" in os.environ else None


def silence(descriptor: int) -> None:
    """Discard everything that is still printed to it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
