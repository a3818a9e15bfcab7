"""A folder belongs to the run that is in it: no other run touches what was saved there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noisin._util.files import sha256
from noisin.errors import NoisinError
from tests.training import toy

TEXT = toy.corpus()
SAME: dict[str, Any] = {"train": {"epochs": 2}}
LONGER: dict[str, Any] = {"train": {"epochs": 3}}
OTHERS: dict[str, dict[str, Any]] = {
    "seed": SAME | {"seed": 3},
    "settings": {"train": {"epochs": 2, "lr": 4.0}},
    "longer": LONGER | {"seed": 3},
}


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("complete") / "run"
    toy.fit(out, text=TEXT, **SAME)
    return out


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): sha256(path.read_bytes()) for path in files}


def without(*names: str) -> Callable[[Path], None]:
    def remove(run: Path) -> None:
        for name in names:
            path = run / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def without_saved(run: Path) -> None:
    """As after a death before the first checkpoint, with nothing but the settings."""
    without("checkpoints", "summary.json")(run)
    (run / "metrics.jsonl").write_text("")


REMAINS: dict[str, Callable[[Path], None]] = {
    "complete": without(),
    "complete, checkpoints gone": without("checkpoints"),
    "not complete": without("summary.json"),
    "not complete, checkpoints gone": without("summary.json", "checkpoints"),
    "no metrics and no checkpoints": without("metrics.jsonl", "checkpoints"),
    "begun": without_saved,
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("remains", REMAINS)
def test_another_run_is_refused(remains: str, other: str, complete: Path, tmp_path: Path) -> None:
    out = shutil.copytree(complete, tmp_path / "run")
    REMAINS[remains](out)
    before = contents(out)
    with pytest.raises(NoisinError, match="contains a run with other settings: .* another folder"):
        toy.fit(out, text=TEXT, **OTHERS[other])
    assert contents(out) == before


@pytest.mark.parametrize("remains", REMAINS)
def test_another_text_is_refused(remains: str, complete: Path, tmp_path: Path) -> None:
    out = shutil.copytree(complete, tmp_path / "run")
    REMAINS[remains](out)
    before = contents(out)
    with pytest.raises(NoisinError, match="contains a run on other data: .* another folder"):
        toy.fit(out, text=toy.corpus(seed=1), **SAME)
    assert contents(out) == before


@pytest.mark.parametrize(
    ("remains", "settings", "message"),
    [
        ("complete, checkpoints gone", LONGER, "a complete run without its checkpoints"),
        ("not complete, checkpoints gone", SAME, "a run of 2 epochs without its checkpoints"),
        ("not complete, checkpoints gone", LONGER, "a run of 2 epochs without its checkpoints"),
    ],
)
def test_a_run_that_cannot_be_continued(
    remains: str, settings: dict[str, Any], message: str, complete: Path, tmp_path: Path
) -> None:
    """To start it again would replace its metrics."""
    out = shutil.copytree(complete, tmp_path / "run")
    REMAINS[remains](out)
    before = contents(out)
    with pytest.raises(NoisinError, match=message):
        toy.fit(out, text=TEXT, **settings)
    assert contents(out) == before


@pytest.mark.parametrize("remains", ["complete", "complete, checkpoints gone"])
def test_a_complete_run_is_left_alone(remains: str, complete: Path, tmp_path: Path) -> None:
    out = shutil.copytree(complete, tmp_path / "run")
    REMAINS[remains](out)
    before = contents(out)
    assert toy.fit(out, text=TEXT, **SAME).summary is not None
    assert contents(out) == before


def test_a_run_that_had_saved_nothing_begins_again(complete: Path, tmp_path: Path) -> None:
    """Also where it was killed between its first line and its first checkpoint."""
    for name in ("begun", "first line"):
        out = shutil.copytree(complete, tmp_path / name)
        first = (out / "metrics.jsonl").read_text().splitlines(keepends=True)[0]
        without_saved(out)
        if name == "first line":
            (out / "checkpoints").mkdir()
            (out / "metrics.jsonl").write_text(first)
        toy.fit(out, text=TEXT, **SAME)
        assert toy.result(out) == toy.result(complete)


def test_metrics_without_settings(complete: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    shutil.copy(complete / "metrics.jsonl", out)
    with pytest.raises(NoisinError, match=r"has the metrics.jsonl of a run but no config.json"):
        toy.fit(out, text=TEXT, **SAME)
    assert contents(out) == {k: v for k, v in contents(complete).items() if k == "metrics.jsonl"}


def test_a_damaged_best_checkpoint_is_refused_before_training(
    complete: Path, tmp_path: Path
) -> None:
    """The end of the run needs it: it is no use to find that out then."""
    out = shutil.copytree(complete, tmp_path / "run")
    manifest = toy.manifest(out, max(toy.numbers(out)))
    best = manifest["best"] if isinstance(manifest["best"], int) else max(manifest["best"].values())
    assert best != manifest["number"]
    (out / "checkpoints" / f"{best:06d}" / "weights.safetensors").write_bytes(b"")
    before = contents(out)
    with pytest.raises(NoisinError, match="the best checkpoint, .* cannot be used"):
        toy.fit(out, text=TEXT, **LONGER)
    assert contents(out) == before
