"""Reading text: by the plain rule, in any number of blocks, and what is said to bad files."""

from __future__ import annotations

import hashlib
import os
import random
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisin.data import load, text
from noisin.data.text import TextStream, split_file
from noisin.data.tokens import by_space
from noisin.errors import InvalidData, NoisinError, Unavailable
from tests.data.conftest import write_folder

PLAIN = st.text(st.sampled_from("ab \n\t\u00a0\u2028\x0bé漢😀"), max_size=60)


def by_the_rule(whole: str) -> list[str]:
    lines = whole.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [word for line in lines for word in [*line.split(), "<eos>"]]


@settings(deadline=None, derandomize=True)
@given(PLAIN, st.integers(1, 9))
def test_blocks_do_not_show(whole: str, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "BLOCK", block)
        stream = TextStream("t", whole.encode())
        read = [word for lines in stream.lines() for word in by_space(lines)]
    assert read == by_the_rule(whole)


def test_the_hash_is_of_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc" * 200_000)
    assert TextStream("x", path).sha256() == hashlib.sha256(path.read_bytes()).hexdigest()
    assert TextStream("x", path, ((3, 6), (6, 9))).sha256() == hashlib.sha256(b"abcabc").hexdigest()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \n\n", "is empty"),
        (b"caf\xe9\n", r"line 1 is not UTF-8 \(byte 0xe9\)"),
        (b"a\nb\n\xff\n", r"line 3 is not UTF-8"),
        (b"\xef\xbb\xbfa b\n", "byte-order mark"),
        ("a b\n".encode("utf-16"), "line 1 has a NUL byte"),
        (b"a b\r\nc\r\n", r"line 1 has a carriage return \(CRLF"),
        (b"a\nb\0c\n", "line 2 has a NUL byte"),
        (b"a\n" + b"x y " * 2**18 + b"z\nb\n", "line 2 is longer than 1,048,576 bytes"),
    ],
)
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_bad_content(tmp_path: Path, split: str, content: bytes, message: str) -> None:
    write_folder(tmp_path)
    (tmp_path / f"{split}.txt").write_bytes(content)
    with pytest.raises(InvalidData, match=message) as caught:
        load(tmp_path)
    assert f"{split}.txt" in str(caught.value)


GOOD = (b"a", b"b", b"cc ", b" ", b"\n", b"\n", b"a b\n", b"\t", b"<eos>", b"\x1c", b"\xe2\x80\xa8")
BAD = (b"\r", b"\r\n", b"\0", b"\xef\xbb\xbf", b"\xff", b"\xc3")


def words_or_message(path: Path) -> list[str] | str:
    try:
        corpus = load(path)
    except NoisinError as error:
        return str(error)
    splits = (corpus.train, corpus.valid, corpus.test)
    return [word for ids in splits for word in corpus.vocab.decode(ids)]


def test_a_thousand_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever bytes they hold: read by the rule, or refused with one message."""
    monkeypatch.setenv("NOISIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(text, "BLOCK", 16)
    monkeypatch.setattr(text, "LONGEST_LINE", 60)
    draw = random.Random(4444)
    path, refused = tmp_path / "book.txt", 0
    for i in range(1000):
        pieces = draw.choices(GOOD, k=draw.randrange(120))
        if i % 3 == 0:
            pieces[draw.randrange(len(pieces) + 1) :] = [draw.choice(BAD), b"\n", *pieces]
        path.write_bytes(b"".join(pieces))
        found = words_or_message(path)
        if isinstance(found, str):
            assert "book.txt" in found
            assert len(found) < 500
            refused += 1
        else:
            assert found == by_the_rule(path.read_bytes().decode())
    assert 350 < refused < 650, "of the rest, those that are too short or have a long line"


def test_the_longest_line() -> None:
    """Exactly so many bytes are fine, wherever the blocks begin."""
    for before in range(0, text.BLOCK, text.BLOCK // 3):
        whole = b"y\n" * before + b"x" * text.LONGEST_LINE + b"\n"
        assert sum(map(len, TextStream("t", whole).lines())) == len(whole)
        with pytest.raises(InvalidData, match=f"line {before + 1} is longer than"):
            list(TextStream("t", b"y\n" * before + b"x" * (text.LONGEST_LINE + 1) + b"\n").lines())


def test_lines_are_counted_over_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "BLOCK", 4)
    with pytest.raises(InvalidData, match="line 8 is not UTF-8"):
        list(TextStream("t", b"a b\n" * 7 + b"\xff\n").lines())


def test_the_mark_is_seen_in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "BLOCK", 1)
    with pytest.raises(InvalidData, match="byte-order mark"):
        list(TextStream("t", b"\xef\xbb\xbfa b\n").lines())


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no.txt: cannot be read: No such file"):
        TextStream(str(tmp_path / "no.txt"), tmp_path / "no.txt").sha256()
    with pytest.raises(Unavailable, match="got a folder or a device"):
        TextStream(str(tmp_path), tmp_path).sha256()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unavailable, match="got a folder or a device"):
        TextStream("pipe", tmp_path / "pipe").sha256()


@contextmanager
def as_anybody() -> Iterator[None]:
    """As somebody whom permissions bind, as they do not bind root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_no_permission() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        folder = Path(place) / "small"
        write_folder(folder)
        (folder / "valid.txt").chmod(0)
        with as_anybody(), pytest.raises(Unavailable, match="valid.txt: cannot be read: Permiss"):
            load(folder)
        folder.chmod(0)
        for name, given in ((folder, None), (folder / "train.txt", None), ("ptb", folder)):
            with as_anybody(), pytest.raises(Unavailable, match="cannot be read: Permission"):
                load(name, given)
        folder.chmod(0o755)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.text("ab ", min_size=1, max_size=9), min_size=40, max_size=80))
def test_a_split_file_is_the_file(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.mktemp("split") / "book.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    parts = split_file(path)
    pieces = [b"".join(part.blocks()) for part in parts.values()]
    assert b"".join(pieces) == path.read_bytes()
    assert all(piece.endswith(b"\n") for piece in pieces)
    size = path.stat().st_size
    assert 0 <= len(pieces[0]) - 0.8 * size <= 10, "cut at the next end of a line"


@pytest.mark.parametrize("content", [b"", b"one line", b"one\ntwo\n", b"a\n" + b"b" * 99])
def test_a_file_too_short_to_split(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "book.txt"
    path.write_bytes(content)
    with pytest.raises(NoisinError, match="book.txt.*(is empty|too few lines to be split)"):
        load(path)


def test_a_file_that_grows_while_it_is_split(tmp_path: Path, monkeypatch: Any) -> None:
    """As under a process that writes it; files of /proc say that they hold nothing, and do."""
    path = tmp_path / "log.txt"
    path.write_text("a b\n" * 99)
    size = os.stat_result([stat.S_IFREG] + [0] * 5 + [10] + [0] * 3)
    monkeypatch.setattr(os, "fstat", lambda _: size)
    with pytest.raises(InvalidData, match="too few lines"):
        load(path)
    if Path("/proc/self/status").exists():
        monkeypatch.undo()
        with pytest.raises(InvalidData, match="/proc/self/status: is empty"):
            load("/proc/self/status")


def test_a_line_too_long_where_the_file_is_cut(tmp_path: Path, monkeypatch: Any) -> None:
    """It is seen wherever the cut falls, also at its first byte."""
    monkeypatch.setattr(text, "LONGEST_LINE", 30)
    monkeypatch.setattr(text, "BLOCK", 8)
    path = tmp_path / "book.txt"
    path.write_bytes(b"a\n" * 68 + b"x" * 31 + b"\n" + b"b\n")  # 170 bytes, the line at 136
    with pytest.raises(InvalidData, match="line 69 is longer than 30 bytes"):
        load(path)
