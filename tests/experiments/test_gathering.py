"""Records of several sources in one folder: each completely or not at all, and none lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from noisin.errors import InvalidValue
from noisin.experiments.collection import collect
from noisin.experiments.gathering import Gathered, gather
from noisin.experiments.sweep.outcome import all_folders, find
from noisin.training.record import RunRecord
from tests.experiments.records import write_run

DIGEST = "0123456789ab"


@pytest.mark.parametrize("missing", ["", "config.json", "metrics.jsonl"])
def test_a_folder_that_was_being_written_is_not_a_record(missing: str, tmp_path: Path) -> None:
    """The command was killed before it could rename the folder: the next one replaces it."""
    run, out = write_run(tmp_path / "a" / "demo").folder, tmp_path / "out"
    left = out / ".new-demo"
    shutil.copytree(run, left)
    if missing:
        (left / missing).unlink()
    (left / "left").touch()
    assert list(collect(out)) == []
    assert collect(out).damaged == []
    assert gather([str(tmp_path / "a")], out) == Gathered(1, 0, 0)
    assert [path.name for path in out.iterdir()] == ["demo"]
    assert not (out / "demo" / "left").exists()


def test_equal_paths_of_different_records_are_refused(tmp_path: Path) -> None:
    sources = [str(tmp_path / name) for name in "ab"]
    for seed, source in enumerate(sources):
        write_run(Path(source) / "demo", seed=seed)
    with pytest.raises(InvalidValue, match=r"a/demo and .*b/demo .* both would be copied to"):
        gather(sources, tmp_path / "all")
    assert not (tmp_path / "all").exists()
    Path(sources[1], "demo").rename(Path(sources[1], "other"))
    assert gather(sources, tmp_path / "all") == Gathered(2, 0, 0)


def end(record: RunRecord, how: str) -> None:
    """As a sweep notes it."""
    record.write(f"{how}.json", {"config": record.config.hash(), "message": "the loss is infinite"})


def test_a_run_that_diverged_is_a_result(tmp_path: Path) -> None:
    """One that failed, or was pruned, may still be made."""
    for seed, how in enumerate(("diverged", "pruned", "failed")):
        end(write_run(tmp_path / "a" / how, (90.0,), complete=False, seed=seed), how)
    sources, out = [str(tmp_path / "a")], tmp_path / "all"
    assert gather(sources, out) == Gathered(1, 0, 2)
    (run,) = collect(out)
    assert (run.folder.name, run.diverged) == ("diverged", "the loss is infinite")
    assert gather(sources, out) == Gathered(0, 1, 2)


def test_a_run_that_diverged_here_and_ended_there_is_refused(tmp_path: Path) -> None:
    end(write_run(tmp_path / "a" / "run", (90.0,), complete=False), "diverged")
    write_run(tmp_path / "b" / "run", (90.0,))
    with pytest.raises(InvalidValue, match="records of the same settings and differ"):
        gather([str(tmp_path / name) for name in "ab"], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_a_run_that_is_being_fetched_is_not_found(tmp_path: Path) -> None:
    """Neither in the folder of a sweep, nor as the folder of one."""
    for name in (f"toy/.new-lr-1-{DIGEST}", f".new/lr-1-{DIGEST}"):
        (tmp_path / name).mkdir(parents=True)
    assert (find(tmp_path, DIGEST), all_folders(tmp_path)) == (None, {})
    run = tmp_path / "toy" / f"lr-1-{DIGEST}"
    run.mkdir()
    assert (find(tmp_path, DIGEST), all_folders(tmp_path)) == (run, {DIGEST: run})


def test_what_is_in_the_folder_already_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is one of the sources, contains one of them, or is named in another way."""
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "runs"
    write_run(runs / "sw" / "run")
    (tmp_path / "link").symlink_to(runs)
    for source, out in (
        *((str(runs), "runs"), ("runs", str(runs)), ("link", "runs"), ("runs", "runs/../runs")),
        *(("runs/sw", "runs"), ("runs/sw/run", "runs"), ("runs", "link")),
    ):
        assert gather([source], out) == Gathered(0, 1, 0), (source, out)
    write_run(tmp_path / "other" / "sw" / "new", seed=1)
    assert gather(["runs", "other"], "runs") == Gathered(1, 1, 0)
    assert gather(["other", "runs", "other"], "runs") == Gathered(0, 4, 0)
    assert sorted(path.name for path in runs.rglob("*") if path.is_dir()) == ["new", "run", "sw"]


def test_a_source_that_is_named_twice_is_copied_once(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "sw" / "run")
    sources = [str(tmp_path / name) for name in ("a", "a/sw", "a")]
    assert gather(sources, tmp_path / "all") == Gathered(1, 2, 0)
    assert [run.folder for run in collect(tmp_path / "all")] == [tmp_path / "all" / "sw" / "run"]


@pytest.mark.parametrize("source", ["runs", "link", "file://{}/runs"])
@pytest.mark.parametrize("out", ["runs/sw", "runs/sw/more/new", "link/sw"])
def test_a_folder_inside_a_source_is_refused(
    source: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "sw" / "run")
    (tmp_path / "link").symlink_to("runs")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidValue, match=f"collect: {out} is inside .*Choose a folder outside"):
        gather([source.format(tmp_path)], out)
    assert sorted(tmp_path.rglob("*")) == before
