"""Text as a stream: read in blocks of whole lines, hashed, and rejected with one message if bad.

Text is processed in blocks, so it may be larger than the memory.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

from noisin._util.regular import NotRegular, open_regular
from noisin.data.tokens import SplitBy
from noisin.errors import InvalidData, Unavailable

BLOCK = 2**16
LONGEST_LINE = 2**20
GROUPS = 10  # parts of a file that is split by blocks
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class TextStream:
    """The bytes of one split: a file, stretches ``[start, stop)`` of one, or bytes in memory."""

    name: str
    content: Path | bytes
    stretches: tuple[tuple[int, int | None], ...] = ((0, None),)

    def blocks(self) -> Iterator[bytes]:
        """The bytes, in blocks of :data:`BLOCK`."""
        with readable(self.name), self._open() as file:
            for start, stop in self.stretches:
                file.seek(start)
                left = None if stop is None else stop - start
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
        if number == 1 and self.stretches[0][0] == 0 and found.startswith(_BOM):
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


def split_file(path: Path, split: SplitBy = "position") -> dict[str, TextStream]:
    """One file as three splits: 80 % for train, 10 % for valid, 10 % for test.

    By ``"position"`` train is the beginning of the file and test its end. By ``"blocks"`` the file
    is first cut into up to :data:`GROUPS` parts, and each of them is split so: the three are alike
    where the text changes on the way. The cuts are moved to the next line end, and neighbouring
    lines stay together.
    """
    with readable(str(path)), TextStream(str(path), path)._open() as file:
        size = os.fstat(file.fileno()).st_size
        for groups in range(1 if split == "position" else GROUPS, 0, -1):
            cuts = _cuts(file, size, groups)
            if all(start < stop for start, stop in pairwise(cuts)):
                break
        else:
            if size:
                raise InvalidData(
                    f"{path}: has too few lines to be split into train, valid and test at line "
                    f"ends. Use a longer text, or a folder with three files."
                )
    stretches = list(pairwise(cuts))
    return {
        name: TextStream(
            f"{path} ({name} part)" if size else str(path), path, tuple(stretches[k::3])
        )
        for k, name in enumerate(("train", "valid", "test"))
    }


def _cuts(file: IO[bytes], size: int, groups: int) -> list[int]:
    """Where the splits of each group begin, and the end."""
    cuts = [0]
    for tenths in (10 * group + share for group in range(groups) for share in (8, 9, 10)):
        file.seek(max(cuts[-1], size * tenths // (10 * groups)))
        file.readline(LONGEST_LINE + 1)
        cuts.append(min(file.tell(), size))  # the file may have grown
    return cuts
