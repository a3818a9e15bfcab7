"""Records of several sources in one folder: each completely or not at all, and none lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from noisin.errors import InvalidValue
from noisin.experiments.collection import collect
from noisin.experiments.gathering import Gathered, gather
from noisin.experiments.sweep.outcome import all_folders, find
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


def test_a_run_that_is_being_fetched_is_not_found(tmp_path: Path) -> None:
    """Neither in the folder of a sweep, nor as the folder of one."""
    for name in (f"toy/.new-lr-1-{DIGEST}", f".new/lr-1-{DIGEST}"):
        (tmp_path / name).mkdir(parents=True)
    assert (find(tmp_path, DIGEST), all_folders(tmp_path)) == (None, {})
    run = tmp_path / "toy" / f"lr-1-{DIGEST}"
    run.mkdir()
    assert (find(tmp_path, DIGEST), all_folders(tmp_path)) == (run, {DIGEST: run})
