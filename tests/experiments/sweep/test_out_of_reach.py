"""URLs and databases that cannot be used: noticed before anything is started, or waited for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from noisin import training
from noisin.errors import NoisinError, Unavailable
from noisin.experiments.sweep import Sweep, driver, worker
from noisin.experiments.sweep.mirror import Mirror, OutOfReach
from noisin.experiments.sweep.worker import Worker
from noisin.training.runtime.signals import Flag
from tests.cli.run import in_process
from tests.experiments.sweep import toy
from tests.experiments.sweep.test_places import job
from tests.training.toy import result

SIGNED = "memory://bucket/runs?sig=SECRET"


@pytest.fixture
def url() -> Iterator[str]:
    yield "memory://bucket/runs"
    fsspec.filesystem("memory").rm("/", recursive=True)


@pytest.fixture
def one(text: Path) -> Sweep:
    return toy.grid(text, 1.0, train={"epochs": 3})


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "WorkerPool", None)
    monkeypatch.setattr(driver, "fetch_records", None)


@pytest.mark.usefixtures("nothing_starts")
def test_a_url_that_cannot_be_written_to(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("NOISIN_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "s.toml"
    path.write_text(f"[data]\nname = {str(text)!r}\n[grid]\ntrain.lr = [1.0]\n")
    assert in_process("sweep", str(path), "--out", "file:///proc/x/y") == 2
    said = capsys.readouterr().err
    assert said.startswith("noisin: sweep: file:///proc/x/y cannot be written to: ")
    assert "Nothing was started" in said
    assert said.count("\n") == 1
    assert not list(tmp_path.glob("cache/sweeps/*/s"))


def test_a_probe_leaves_nothing_and_hides_secrets(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = Mirror(url, "toy")
    mirror.probe()
    assert mirror.files.find("/") == []
    signed = Mirror(SIGNED, "toy")

    def refuse(*_: Any) -> None:
        raise PermissionError(f"403 for {SIGNED}: SECRET is not valid")

    monkeypatch.setattr(signed.files, "pipe_file", refuse)
    with pytest.raises(NoisinError, match=r"runs\?sig=\*\*\* cannot be written to: 403") as error:
        signed.probe()
    assert "SECRET" not in str(error.value)


class Store(MemoryFileSystem):
    """Objects in buckets, as S3 has them: a folder is created by creating its bucket."""

    protocol = ("s3", "s3a")
    store: dict[str, Any] = {}  # noqa: RUF012 - of its base class
    pseudo_dirs = [""]  # noqa: RUF012
    buckets: set[str] = set()  # noqa: RUF012

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.buckets.add(path.split("/")[1])

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        if path.split("/")[1] not in self.buckets:
            raise FileNotFoundError("The specified bucket does not exist")
        super().pipe_file(path, value)


def test_a_bucket_is_not_created(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = Mirror(url, "toy")
    monkeypatch.setattr(mirror, "files", Store())
    with pytest.raises(NoisinError, match="cannot be written to: The specified bucket does not"):
        mirror.probe()
    assert Store.buckets == set()
    monkeypatch.setattr(Store, "buckets", {"bucket"})
    mirror.probe()


class Outage:
    """Makes the first requests to write fail, from the second file on."""

    def __init__(self, mirror: Mirror, patch: pytest.MonkeyPatch, count: int, error: type) -> None:
        self.left, self.write, self.error, self.seen = count, mirror.files.pipe_file, error, 0
        patch.setattr(mirror.files, "pipe_file", self)
        patch.setattr(worker, "PAUSE", 0.01)

    def __call__(self, path: str, content: bytes) -> None:
        self.seen += 1
        if self.seen > 1 and self.left:
            self.left -= 1
            raise self.error("the network is down")
        self.write(path, content)


def test_training_continues_after_a_short_outage(
    one: Sweep, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Worker(job(one, tmp_path / "a", url=url), Flag(), lambda _: None)
    assert made.mirror is not None
    outage = Outage(made.mirror, monkeypatch, 5, ConnectionError)
    made.work()
    assert outage.left == 0
    assert [s.outcomes[0].state for s in made.ledger.survey()] == ["complete"]
    (folder,) = (tmp_path / "a" / "out" / "toy").glob("lr-*")
    training.run(one.tasks[0].runs[0].config, tmp_path / "alone")
    assert result(folder) == result(tmp_path / "alone")
    assert list(Mirror(url, "toy").published()) == [folder.name]


@pytest.mark.parametrize("error", [ConnectionError, PermissionError])
def test_a_long_outage_fails_no_run(
    error: type, one: Sweep, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker ends, and the next one continues the run."""
    told = job(one, tmp_path / "a", url=url, patience=0.1)
    made = Worker(told, Flag(), lambda _: None)
    assert made.mirror is not None
    with monkeypatch.context() as patch:
        Outage(made.mirror, patch, 10_000, error)
        with pytest.raises(OutOfReach, match="the network is down. Everything is in the folder"):
            made.work()
    assert [s.outcomes[0].state for s in made.ledger.survey()] == ["open"]
    said = toy.Told()
    Worker(told, Flag(), said.append).work()
    assert {message["begun"] for message in said if "begun" in message} == {1 / 3}
    assert [s.outcomes[0].state for s in made.ledger.survey()] == ["complete"]


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("address", ["nonsense", "mysql://h/d", "postgresql+psycopg://u@h:x/d"])
def test_a_bad_address_leaves_no_folder(address: str, one: Sweep, tmp_path: Path) -> None:
    with pytest.raises(NoisinError, match="cannot be used"):
        driver.run(one, tmp_path / "runs", storage=address)
    with pytest.raises(Unavailable, match="cannot be used"):
        driver.run(one, tmp_path / "runs", storage=f"sqlite:///{tmp_path}/no/such/folder.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["runs/all.db", "runs/toy/own.db", "other.db"])
def test_a_database_in_a_folder_that_the_sweep_creates(
    place: str, one: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_work", lambda pool, _: pool.ledger.survey())
    monkeypatch.chdir(tmp_path)
    driver.run(one, "runs", storage=f"sqlite:///{place}")
    assert Path(place).exists()
