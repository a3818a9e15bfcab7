"""Downloads, from a server of our own on this machine."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from noisin._util import places
from noisin.data import load
from noisin.data.datasets import DATASETS
from noisin.errors import InvalidData, Unavailable
from tests.data.conftest import write_folder


class Quiet(SimpleHTTPRequestHandler):
    requests = 0

    def log_message(self, *_: object) -> None:
        type(self).requests += 1


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that 'ptb' is downloaded from, with the hashes of what is in it now."""
    monkeypatch.delenv("NOISIN_DATA", raising=False)
    monkeypatch.setenv("NOISIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Quiet, "requests", 0)
    write_folder(tmp_path / "served")
    server = HTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "served")))
    sha256 = {
        split: hashlib.sha256((tmp_path / "served" / f"{split}.txt").read_bytes()).hexdigest()
        for split in ("train", "valid", "test")
    }
    url = f"http://127.0.0.1:{server.server_port}/{{split}}.txt"
    here = dataclasses.replace(DATASETS["ptb"], url=url, sha256=sha256)
    monkeypatch.setitem(DATASETS, "ptb", here)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield tmp_path / "served"
    server.shutdown()
    thread.join()
    server.server_close()


def test_downloaded_once(served: Path, capfd: pytest.CaptureFixture[str]) -> None:
    corpus = load("ptb")
    assert corpus.vocab.decode(corpus.train) == ["a", "b", "c", "<eos>", "b", "c", "<eos>"]
    assert corpus.source == DATASETS["ptb"].url
    assert Quiet.requests == 3
    load("ptb")
    assert Quiet.requests == 3, "from the cache"
    assert capfd.readouterr() == ("", ""), "the library prints nothing"


def test_a_damaged_download_is_fetched_again(served: Path) -> None:
    load("ptb")
    kept = places.cache() / "text" / "ptb" / "valid.txt"
    kept.write_text("damaged")
    load("ptb")
    assert kept.read_text() == (served / "valid.txt").read_text()


def test_a_download_that_was_killed(served: Path) -> None:
    left = places.cache() / "text" / "ptb" / "tmp1a2b3c4d"
    left.parent.mkdir(parents=True)
    left.write_text("half")
    os.utime(left, (0, 0))
    load("ptb")
    assert sorted(p.name for p in left.parent.iterdir()) == ["test.txt", "train.txt", "valid.txt"]


def test_a_folder_without_it_is_no_obstacle_in_the_environment(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("NOISIN_DATA", str(tmp_path / "empty"))
    assert load("ptb").source == DATASETS["ptb"].url


def test_wrong_bytes(served: Path) -> None:
    (served / "test.txt").write_text("something else\n")
    with pytest.raises(InvalidData, match=r"test.txt is not the expected one.*--data FOLDER"):
        load("ptb")
    assert not (places.cache() / "text" / "ptb" / "test.txt").exists()


def test_not_found(served: Path) -> None:
    (served / "train.txt").unlink()
    with pytest.raises(Unavailable, match=r"cannot be reached \(HTTPError\)"):
        load("ptb")


def test_no_network(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens on port 9 of this machine."""
    away = dataclasses.replace(DATASETS["ptb"], url="http://127.0.0.1:9/{split}")
    monkeypatch.setitem(DATASETS, "ptb", away)
    with pytest.raises(Unavailable, match=r"cannot be reached \(ConnectionError\).*NOISIN_DATA"):
        load("ptb")


def test_a_cache_that_cannot_be_written(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NOISIN_CACHE", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="cache cannot be used"):
        corpus = load("ptb")
    assert len(corpus.train) == 7
