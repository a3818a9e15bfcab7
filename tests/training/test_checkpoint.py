"""Checkpoints: which are kept, what they hold, and how they are numbered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from noisin._util.files import sha256
from noisin.errors import InvalidValue, Unsupported
from noisin.training.checkpoint import Checkpoints, Damaged
from noisin.training.state import load_weights

RUN = {"config": "a", "data": "b", "vocabulary": "c"}


def fail(message: str) -> None:
    pytest.fail(message)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "run" / "checkpoints", RUN)


def save(checkpoints: Checkpoints, step: int, best: Any = (), improved: Any = ()) -> Any:
    """A new checkpoint; returns the best ones."""
    weights, state = {"w": torch.full((2, 3), float(step))}, {"step": step}
    when = {"step": step, "epoch": step // 2}
    return checkpoints.save(weights, None, state, **when, best=dict(best), improved=improved)


def test_what_is_saved_is_loaded(checkpoints: Checkpoints) -> None:
    assert checkpoints.newest(fail) is None
    weights = {"w": torch.randn(2, 3).t(), "b": torch.randn(4, dtype=torch.float64)}
    average = {"w": torch.randn(3, 2), "b": torch.randn(4, dtype=torch.float64)}
    state: dict[str, Any] = {
        "carried": ((torch.randn(1, 2), torch.randn(1, 2)), torch.randn(3)),
        "generators": {"cpu": torch.get_rng_state()},
        "history": [1.5, float("inf")],
        "cut": False,
    }
    best = checkpoints.save(
        weights, average, state, step=7, epoch=1, best={}, improved=["raw", "averaged"]
    )
    assert best == {"raw": 1, "averaged": 1}
    loaded = checkpoints.newest(fail)
    assert loaded is not None
    assert (loaded.manifest.step, loaded.manifest.epoch, loaded.manifest.best) == (7, 1, best)
    for name in weights:
        assert torch.equal(loaded.weights[name], weights[name])
        assert loaded.average is not None
        assert torch.equal(loaded.average[name], average[name])
    assert torch.equal(loaded.state["carried"][0][1], state["carried"][0][1])
    assert isinstance(loaded.state["carried"], tuple)
    assert loaded.state["history"] == state["history"]


def test_the_last_two_and_the_best_are_kept(checkpoints: Checkpoints) -> None:
    """And the best that the last but one knew, in case that the last is damaged."""
    best: dict[str, int] = {}
    kept = []
    for step, improves in enumerate([True, False, False, True, False, True, True], start=1):
        best = save(checkpoints, step, best, ["raw"] if improves else [])
        kept.append(checkpoints.numbers())
    assert kept == [[1], [1, 2], [1, 2, 3], [1, 3, 4], [4, 5], [4, 5, 6], [6, 7]]
    newest = checkpoints.newest(fail)
    assert newest is not None
    assert checkpoints.best(newest, "raw").manifest.number == 7


def test_the_best_raw_weights_and_the_best_average_are_kept(checkpoints: Checkpoints) -> None:
    best = save(checkpoints, 1, {}, ["raw"])
    best = save(checkpoints, 2, best, ["averaged"])
    for step in (3, 4, 5):
        best = save(checkpoints, step, best)
    assert checkpoints.numbers() == [1, 2, 4, 5]
    newest = checkpoints.newest(fail)
    assert newest is not None
    assert checkpoints.best(newest, "raw").manifest.number == 1
    assert checkpoints.best(newest, "averaged").manifest.number == 2


def test_before_there_is_a_best_the_newest_is(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1)
    newest = checkpoints.newest(fail)
    assert newest is not None
    assert checkpoints.best(newest, "averaged") is newest


def test_the_best_is_damaged(checkpoints: Checkpoints) -> None:
    best = save(checkpoints, 1, {}, ["raw"])
    save(checkpoints, 2, best)
    (checkpoints.path(1) / "weights.safetensors").write_bytes(b"")
    newest = checkpoints.newest(fail)
    assert newest is not None
    with pytest.raises(InvalidValue, match="the best checkpoint, .*000001, cannot be used"):
        checkpoints.best(newest, "raw")


def test_what_was_set_aside_keeps_its_number(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1)
    save(checkpoints, 2)
    (checkpoints.path(2) / "state.pt").unlink()
    notes: list[str] = []
    newest = checkpoints.newest(notes.append)
    assert newest is not None
    assert "its state.pt cannot be read (No such file or directory)" in notes[0]
    checkpoints.set_aside(newer_than=newest.manifest.number)
    assert checkpoints.numbers() == [1]
    save(checkpoints, 2)
    assert checkpoints.numbers() == [1, 3]
    assert (checkpoints.folder / "damaged-000002").is_dir()


def test_what_is_not_ours_is_left_alone(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1)
    for name in ("7", "notes.txt", "000009", ".DS_Store"):
        (checkpoints.folder / name).touch()
    (checkpoints.folder / "12").mkdir()
    (checkpoints.folder / ".new-000002").mkdir()
    (checkpoints.folder / ".old-000003").mkdir()
    checkpoints.clean_up()
    assert checkpoints.numbers() == [1]
    save(checkpoints, 2)
    assert checkpoints.numbers() == [1, 13]
    left = {path.name for path in checkpoints.folder.iterdir()}
    assert left == {"7", "notes.txt", "000009", ".DS_Store", "12", "000001", "000013"}


def test_a_manifest_under_another_number(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1)
    checkpoints.path(1).rename(checkpoints.path(5))
    with pytest.raises(Damaged, match="its manifest is that of number 1"):
        checkpoints.load(5)


def test_another_format(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    save(checkpoints, 1)
    monkeypatch.setattr("noisin.training.checkpoint.FORMATS", (1, 2))
    with pytest.raises(Damaged, match="it has format 3; this version reads 1 and 2"):
        checkpoints.load(1)


def test_the_format_of_noisin_0_1(checkpoints: Checkpoints) -> None:
    """It kept one best checkpoint, whose raw weights or whose average were the best."""
    save(checkpoints, 1)
    save(checkpoints, 2)
    for number, best in ((1, 0), (2, 1)):
        path = checkpoints.path(number) / "manifest.json"
        body = json.loads(path.read_bytes()) | {"format": 1, "best": best}
        del body["sha256"]
        body["sha256"] = sha256(json.dumps(body, sort_keys=True).encode())
        path.write_text(json.dumps(body))
    assert checkpoints.load(1).manifest.best == {}
    newest = checkpoints.load(2)
    assert checkpoints.best(newest, "raw").manifest.number == 1
    assert checkpoints.best(newest, "averaged").manifest.number == 1


def test_weights_of_another_version() -> None:
    """The same settings, and yet other weights."""

    weights = {"w": torch.zeros(2), "b": torch.zeros(3)}
    with pytest.raises(Unsupported, match=r"do not match the model \(first difference: b\)"):
        load_weights(weights, {"w": torch.ones(2), "b": torch.ones(4)})
    assert not weights["w"].any()
