"""``--out s3://...`` on moto's S3 server, on loopback: ``make s3``, which has it installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from noisin import training
from noisin.errors import Unavailable
from noisin.experiments.gathering import Gathered, gather
from noisin.experiments.sweep.mirror import Mirror
from noisin.experiments.sweep.worker import Worker
from noisin.training.runtime.signals import Flag
from tests.experiments.sweep import toy
from tests.experiments.sweep.test_places import job, stopped
from tests.postgres import free_port
from tests.training.toy import result

s3fs = pytest.importorskip("s3fs", reason="needs s3fs and moto: make s3")
moto = pytest.importorskip("moto.server", reason="needs s3fs and moto: make s3")


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = moto.ThreadedMotoServer("127.0.0.1", port := free_port())
    server.start()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().makedirs("bucket", exist_ok=True)  # servers of one process share them
    yield "s3://bucket/runs"
    server.stop()


@pytest.mark.filterwarnings("default")  # those of boto and the server are not ours
def test_a_run_continues_on_another_machine(text: Path, tmp_path: Path, url: str) -> None:
    sweep = toy.grid(text, 1.0, train={"epochs": 3})
    a, b = tmp_path / "a", tmp_path / "b"
    stopped(sweep, a, url=url)
    assert len(Mirror(url, "toy").unpublished()) == 1
    shutil.rmtree(a)
    told = toy.Told()
    Worker(job(sweep, b, url=url), Flag(), told.append).work()
    assert {message["begun"] for message in told if "begun" in message} == {1 / 3}
    training.run(sweep.tasks[0].runs[0].config, tmp_path / "alone")
    assert Mirror(url, "toy").unpublished() == []
    assert gather([url], tmp_path / "all") == Gathered(1, 0, 0)
    (folder,) = (tmp_path / "all" / "toy").glob("lr-*")
    assert result(folder) == result(tmp_path / "alone")
    shutil.rmtree(b)
    (tmp_path / "study.db").unlink()
    Mirror(url, "toy").fetch(b / "out" / "toy" / folder.name, ["config.json", "summary.json"])
    assert (b / "out" / "toy" / folder.name / "summary.json").exists()


@pytest.mark.filterwarnings("default")
def test_a_bucket_is_not_created(url: str) -> None:
    Mirror(url, "toy").probe()
    with pytest.raises(Unavailable, match="s3://nobucket/runs cannot be written to"):
        Mirror("s3://nobucket/runs", "toy").probe()
    assert [str(name) for name in s3fs.S3FileSystem().ls("", refresh=True)] == ["bucket"]
