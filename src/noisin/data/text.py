"""Text as a stream: read in blocks of whole lines, hashed, and rejected with one message if bad.

Text is processed in blocks, so it may be larger than the memory.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from noisin._util.regular import NotRegular, open_regular
from noisin.data.vocab import EOS
from noisin.errors import InvalidData, Unavailable

BLOCK = 2**16
LONGEST_LINE = 2**20
_BOM = b"\xef\xbb\xbf"
_SPELT = {"\n": EOS, " ": "<space>"}


@dataclass(frozen=True)
class TextStream:
    """The bytes of one split: a file, a stretch ``[start, stop)`` of a file, or bytes in memory."""

    name: str
    content: Path | bytes
    start: int = 0
    stop: int | None = None

    def blocks(self) -> Iterator[bytes]:
        """The bytes, in blocks of :data:`BLOCK`."""
        with readable(self.name), self._open() as file:
            file.seek(self.start)
            left = None if self.stop is None else self.stop - self.start
            while block := file.read(BLOCK if left is None else min(BLOCK, left)):
                yield block
                left = None if left is None else left - len(block)

    def _open(self) -> IO[bytes]:
        if isinstance(self.content, bytes):
            return io.BytesIO(self.content)
        try:
            return open_regular(self.content)
        except (IsADirectoryError, NotRegular):
            raise Unavailable(
                f"{self.name}: expected a text file, got a folder or a device."
            ) from None

    def sha256(self) -> str:
        """The hash of the bytes."""
        digest = hashlib.sha256()
        for block in self.blocks():
            digest.update(block)
        return digest.hexdigest()

    def lines(self) -> Iterator[str]:
        """The text, in blocks of whole lines, each of which ends in a line break."""
        number, rest = 1, b""
        for block in self.blocks():
            found = rest + block
            self._check_start(found, number)
            whole, end, rest = found.rpartition(b"\n")
            if end:
                yield self._decode(whole + end, number)
                number += whole.count(b"\n") + 1
        if rest:
            yield self._decode(rest + b"\n", number)

    def _check_start(self, found: bytes, number: int) -> None:
        if number == 1 and self.start == 0 and found.startswith(_BOM):
            raise InvalidData(
                f"{self.name}: begins with a byte-order mark, which would become part of the "
                f"first word. Save it as UTF-8 without BOM."
            )
        end = found.find(b"\n")  # only the first line can be longer than a block
        if (len(found) if end < 0 else end) > LONGEST_LINE:
            raise InvalidData(
                f"{self.name}: line {number} is longer than {LONGEST_LINE:,} bytes. Expected "
                f"text in lines; break it at spaces, for instance with: fold -s -w 1000."
            )

    def _decode(self, lines: bytes, number: int) -> str:
        def line_of(place: int) -> int:
            return number + lines.count(b"\n", 0, place)

        if (place := lines.find(b"\0")) >= 0:
            raise InvalidData(
                f"{self.name}: line {line_of(place)} has a NUL byte, so this is not plain text. "
                f"Expected UTF-8; a UTF-16 file must be converted: iconv -f UTF-16 -t UTF-8."
            )
        if (place := lines.find(b"\r")) >= 0:
            raise InvalidData(
                f"{self.name}: line {line_of(place)} has a carriage return (CRLF line ends, as "
                f"Windows writes them). Convert the file: dos2unix, or tr -d '\\r'."
            )
        try:
            return lines.decode()
        except UnicodeDecodeError as error:
            raise InvalidData(
                f"{self.name}: line {line_of(error.start)} is not UTF-8 (byte "
                f"0x{lines[error.start]:02x}). Convert the file: iconv -f LATIN1 -t UTF-8."
            ) from None


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn an ``OSError`` into an error that names the file."""
    try:
        yield
    except Unavailable:
        raise
    except OSError as error:
        raise Unavailable(f"{name}: cannot be read: {error.strerror or error}.") from None


def words(lines: str) -> list[str]:
    r"""``line.split() + ["<eos>"]`` for every line, blank ones too.

    >>> words("the cat\n\nsat\n")
    ['the', 'cat', '<eos>', '<eos>', 'sat', '<eos>']
    """
    return lines.replace("\n", f" {EOS} ").split()


def characters(lines: str) -> list[str]:
    r"""The characters of lines; white space is spelt, because a word of a vocabulary has none.

    >>> characters("a cat\n\t!\n")
    ['a', '<space>', 'c', 'a', 't', '<eos>', '<U+0009>', '!', '<eos>']
    """
    return [_SPELT.get(c, f"<U+{ord(c):04X}>") if c.isspace() else c for c in lines]


def joined(tokens: Iterable[str]) -> str:
    r"""The text of :func:`characters`.

    >>> joined(["a", "<space>", "b", "<U+0009>", "<eos>"])
    'a b\t\n'
    """
    spelt = {name: c for c, name in _SPELT.items()}
    coded = re.compile(r"<U\+([0-9A-F]{4,6})>")
    return "".join(
        chr(int(code[1], 16)) if (code := coded.fullmatch(token)) else spelt.get(token, token)
        for token in tokens
    )


Tokens = Literal["words", "characters"]
TOKENIZERS: Mapping[Tokens, Callable[[str], list[str]]] = {
    "words": words,
    "characters": characters,
}


def split_file(path: Path) -> dict[str, TextStream]:
    """One file as three splits: the first 80 % for train, 10 % for valid, 10 % for test.

    The cuts are moved to the next line end. Contiguous splits keep neighbouring lines together.
    """
    with readable(str(path)), TextStream(str(path), path)._open() as file:
        size = os.fstat(file.fileno()).st_size
        cuts = [0]
        for tenths in (8, 9):
            file.seek(max(cuts[-1], size * tenths // 10))
            file.readline(LONGEST_LINE + 1)
            cuts.append(min(file.tell(), size))  # the file may have grown
        cuts.append(size)
    if size and not cuts[1] < cuts[2] < cuts[3]:
        raise InvalidData(
            f"{path}: has too few lines to be split into train, valid and test at line ends. "
            f"Use a longer text, or a folder with three files."
        )
    return {
        split: TextStream(f"{path} ({split} part)" if size else str(path), path, start, stop)
        for split, start, stop in zip(("train", "valid", "test"), cuts, cuts[1:], strict=False)
    }
