"""The cache: found by content, whole or not at all, and never in the way."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisin.data import Corpus, cache, load
from noisin.errors import InvalidData, Unavailable
from tests.data.conftest import write_folder
from tests.users import OTHER, needs_root


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NOISIN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def entries(place: Path) -> list[Path]:
    return sorted((place / "ids").iterdir())


def same(a: Corpus, b: Corpus) -> bool:
    ids = all(np.array_equal(getattr(a, s), getattr(b, s)) for s in ("train", "valid", "test"))
    return ids and a.vocab == b.vocab and a.sha256 == b.sha256


def test_found_by_content_not_by_path(folder: Path, place: Path, tmp_path: Path) -> None:
    first = load(folder)
    (entry,) = entries(place)
    written = entry.stat().st_mtime_ns
    shutil.copytree(folder, tmp_path / "copy")
    assert same(first, load(tmp_path / "copy"))
    assert entry.stat().st_mtime_ns == written, "not built again"
    write_folder(folder, train="a b c\nb d\n")
    assert load(folder).sha256 != first.sha256
    assert len(entries(place)) == 2


def test_the_order_of_splits_counts(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", valid="x y\n", test="y z\n")
    write_folder(tmp_path / "b", valid="y z\n", test="x y\n")
    assert load(tmp_path / "a").sha256 != load(tmp_path / "b").sha256


def test_damage_is_seen_and_mended(folder: Path, place: Path) -> None:
    first = load(folder).train.tolist()  # a copy: a mapped file must not be cut short under its map
    (entry,) = entries(place)
    whole = entry.read_bytes()
    damaged = [whole[:n] for n in range(0, len(whole), 7)]
    for i in range(0, len(whole), 5):
        damaged.append(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
    damaged += [whole + b"x", whole + whole, b"garbage" * 99]
    for content in damaged:
        entry.write_bytes(content)
        assert load(folder).train.tolist() == first
        assert entry.read_bytes() == whole


TAILS: list[Any] = [
    *([], 3, {}, {"lengths": [9]}, {"lengths": None, "words": ["<eos>"]}),
    *({"lengths": [-1, 2, 3], "words": ["<eos>"]}, {"lengths": [10**9, 1, 1], "words": ["<eos>"]}),
    *({"lengths": [1, 1, 1], "words": 7}, {"lengths": [1, 1, 1], "words": ["<eos>"]}),
    {"lengths": [1, 1], "words": ["a", "b", "<eos>"]},
]


@pytest.mark.parametrize("tail", TAILS)
def test_what_nobody_wrote_is_mended(folder: Path, place: Path, tail: Any) -> None:
    """Whole by its hash, and yet not ids and words: too few words, for instance."""
    first = load(folder).train.tolist()
    (entry,) = entries(place)
    whole = entry.read_bytes()
    content = np.array([0, 1, 2], dtype=np.int32).tobytes() + json.dumps(tail).encode()
    content += len(json.dumps(tail)).to_bytes(8, "little")
    entry.write_bytes(content + hashlib.sha256(content).digest())
    assert load(folder).train.tolist() == first
    assert entry.read_bytes() == whole


def test_a_fifo_in_its_place(folder: Path, place: Path) -> None:
    first = load(folder).train.tolist()
    (entry,) = entries(place)
    entry.unlink()
    os.mkfifo(entry)
    assert load(folder).train.tolist() == first
    assert entry.is_file()


def test_ids_are_mapped_and_cannot_be_changed(folder: Path) -> None:
    corpus = load(folder)
    for split in (corpus.train, corpus.valid, corpus.test):
        assert isinstance(split, np.memmap)
        assert split.dtype == np.int32
        with pytest.raises(ValueError, match="read-only"):
            split[0] = 1


def test_two_processes_at_once(folder: Path, place: Path) -> None:
    code = f"from noisin.data import load; c = load({str(folder)!r}); print(c.train.tolist())"
    command = [sys.executable, "-W", "error", "-c", code]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    printed = {run.communicate()[0] for run in runs}
    assert [run.returncode for run in runs] == [0] * 4
    assert printed == {f"{load(folder).train.tolist()}\n"}
    assert len(entries(place)) == 1, "nothing else is left behind"


KILLED = """
import os, signal, sys
from noisin.data import load, tokens

tokens.TOKENIZERS = {"space": lambda _: os.kill(os.getpid(), signal.SIGKILL)}
load(sys.argv[1])
"""


def test_killed_while_writing(folder: Path, place: Path, tmp_path: Path) -> None:
    """What is left behind does no harm, and goes when it is certain that nobody writes to it."""
    run = subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False)
    assert run.returncode == -signal.SIGKILL
    (left,) = entries(place)
    assert left.name.startswith(".new-")
    load(folder)
    assert len(entries(place)) == 2, "it might still be at work"
    old = time.time() - cache.STALE - 1
    os.utime(left, (old, old))
    write_folder(tmp_path / "other", train="other words\n")
    load(tmp_path / "other")
    assert left not in entries(place)
    assert len(entries(place)) == 2


def test_a_writer_that_was_taken_for_dead(folder: Path, place: Path) -> None:
    """Its file is removed under its hands: it says so, and reads the text all the same."""

    def write(writer: cache.Writer) -> None:
        for path in (place / "ids").glob(".new-*"):
            path.unlink()
        writer.put(np.arange(3, dtype=np.int32))
        writer.close([1, 1, 1], ["a", "b", "<eos>"])

    with pytest.warns(RuntimeWarning, match="No such file"):
        entry = cache.put("key", write)
    assert [ids.tolist() for ids in entry.ids] == [[0], [1], [2]]


def test_a_mapped_corpus_outlives_its_file(folder: Path, place: Path) -> None:
    corpus = load(folder)
    before = corpus.train.tolist()
    (entry,) = entries(place)
    cache.store(entry, lambda file: file.write(b"something else"))
    assert corpus.train.tolist() == before


@pytest.mark.parametrize("blocked", ["a file", "/proc/no", "/dev/null/x"])
def test_a_cache_that_cannot_be_written(
    folder: Path, tmp_path: Path, blocked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").touch()
    expected = load(folder)
    monkeypatch.setenv("NOISIN_CACHE", str(tmp_path / blocked))
    with pytest.warns(RuntimeWarning, match="Set NOISIN_CACHE to a writable folder"):
        assert same(load(folder), expected)


def test_no_home(folder: Path) -> None:
    """Where there is neither a home nor a cache, the text is read all the same."""
    code = (
        "import os, warnings; warnings.simplefilter('ignore')\n"
        "os.getuid = lambda: 10**6\n"
        f"from noisin.data import load; print(load({str(folder)!r}))"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("HOME", "NOISIN_CACHE")}
    environment.pop("XDG_CACHE_HOME", None)
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("Corpus('small'")


def test_no_room_anywhere(folder: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with (
        pytest.warns(RuntimeWarning, match="No space left"),
        pytest.raises(Unavailable, match="No space for the ids.*No space left"),
    ):
        load(folder)


def test_bad_text_leaves_nothing_behind(folder: Path, place: Path) -> None:
    (folder / "test.txt").write_bytes(b"\xff")
    with pytest.raises(InvalidData):
        load(folder)
    assert entries(place) == []


def test_text_that_changes_while_it_is_read(
    folder: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meddle(lines: str) -> list[str]:
        (folder / "train.txt").write_text("quite another text\n")
        return lines.split()

    monkeypatch.setattr("noisin.data.tokens.TOKENIZERS", {"space": meddle})
    with pytest.raises(InvalidData, match="changed while it was being read"):
        load(folder)


def entry_of(tail: object, ids: list[int]) -> bytes:
    """An entry whose hash is right, with anything for its tail."""
    content = np.array(ids, cache.ID).tobytes()
    text = json.dumps(tail).encode()
    content += text + len(text).to_bytes(8, "little")
    return content + hashlib.sha256(content).digest()


WORDS = ["a", "<eos>"]


@pytest.mark.parametrize(
    ("tail", "ids"),
    [
        ([], [0]),
        ({"lengths": [1, 1, 1]}, [0, 0, 0]),
        ({"lengths": [1, 1], "words": WORDS}, [0, 0]),
        ({"lengths": [1, 1, 99], "words": WORDS}, [0, 0, 0]),
        ({"lengths": "abc", "words": WORDS}, [0, 0, 0]),
        ({"lengths": [1, 1, 1], "words": ["a", "a", 3]}, [0, 0, 0]),
        ({"lengths": [1, 1, 1], "words": WORDS}, [0, 2, 0]),
        ({"lengths": [1, 1, 1], "words": WORDS}, [0, -1, 0]),
    ],
)
def test_an_entry_of_other_contents_with_a_right_hash(
    tail: object, ids: list[int], folder: Path, place: Path
) -> None:
    first = load(folder).train.tolist()
    (entry,) = entries(place)
    entry.write_bytes(entry_of(tail, ids))
    assert load(folder).train.tolist() == first


@needs_root
def test_an_entry_of_another_user_is_built_anew(folder: Path, place: Path) -> None:
    first = load(folder).train.tolist()
    (entry,) = entries(place)
    os.chown(entry, OTHER, OTHER)
    assert load(folder).train.tolist() == first
    assert entry.stat().st_uid == os.geteuid()


def test_the_cache_is_made_for_the_user_alone(folder: Path, place: Path) -> None:
    before = os.umask(0)
    try:
        load(folder)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(p.stat().st_mode) for p in (place, place / "ids")] == [0o700] * 2
