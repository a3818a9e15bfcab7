r"""Text from outside, made safe to print: no control characters, and of bounded length.

Names, paths and values come from arguments and files. A message that quotes them must not control
the terminal (escape sequences, overrides of the writing direction) or flood it.
"""

from __future__ import annotations

VALUE, LINE, LINES = 200, 600, 60  # maximum characters of a value and of a line, lines of a message
NOT_TEXT = "It cannot be decoded. Use a UTF-8 locale, such as LC_ALL=C.UTF-8, and valid names."
_JOINERS = "\u200c\u200d"  # needed by Persian, Hindi and emoji, and harmless


def printable(text: str) -> str:
    r"""Text with every character escaped that is not printable, except for line ends.

    >>> print(printable("a\x1b[31mb\u202ec\rd"))
    a\x1b[31mb\u202ec\rd
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n" + _JOINERS else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    rare_space = character.isspace() and ord(character) >= 0xA0
    return " " if rare_space else repr(character)[1:-1]


def shortened(text: str, most: int = VALUE) -> str:
    """Text of at most ``most`` characters; the middle of a longer one is left out.

    >>> shortened("x" * 5000, 40)
    'xxxxxxxxx… (5,000 characters) …xxxxxxxxx'
    """
    if len(text) <= most:
        return text
    mark = f"… ({len(text):,} characters) …"
    room = most - len(mark)
    return text[: room - room // 2] + mark + text[len(text) - room // 2 :]


def shown(value: object, most: int = VALUE) -> str:
    r"""The ``repr`` of a value as messages quote it: on one line, and not too long.

    >>> print(shown("a\nb"), shown(1.5))
    'a\nb' 1.5
    """
    return shortened(printable(repr(value)).replace("\n", r"\n"), most)


def message(text: str) -> str:
    """A message made printable and of bounded length, whatever it quotes."""
    lines = printable(text).split("\n")
    if len(lines) > LINES:
        lines[LINES - 1 :] = [f"… ({len(lines) - LINES + 1:,} more lines)"]
    return "\n".join(shortened(line, LINE) for line in lines)
