"""The scripts that make the runs of the evidence: what they repeat, and what they choose."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.evidence.written import end
from tests.experiments.records import write_run

EVIDENCE = Path(__file__).parents[3] / "results" / "evidence"
AGAIN, FINAL = (runpy.run_path(str(EVIDENCE / f"{name}.py")) for name in ("again", "final"))


def search(std: float, lr: float = 20.0, *, score: float = 3.0, **more: Any) -> dict[str, Any]:
    """A search over three stds and, as a larger budget has it, three learning rates."""
    tried = [{"std": s, "lr": 20.0} for s in (0.25, 0.4, 0.63)]
    tried += [{"std": std, "lr": rate} for rate in (10.0, 40.0)]
    chosen = {"std": std, "lr": lr, "score": score}
    return {"start": {"std": 0.4}, "tried": tried, "chosen": chosen, **more}


@pytest.mark.parametrize(
    ("found", "flags"),
    [
        ([search(0.4)], []),
        ([search(0.63)], ["--around", "1.6"]),
        ([search(0.25)], ["--around", "0.1"]),
        ([search(0.4, 40.0)], ["--train.lr", "40"]),
        ([search(0.63, 10.0)], ["--around", "1.6", "--train.lr", "10"]),
        ([search(0.63, start=None)], []),
        ([search(0.63), search(0.63, 40.0)], []),
    ],
)
def test_a_search_that_ends_at_an_end_is_repeated_once(
    found: list[dict[str, Any]], flags: list[str]
) -> None:
    assert AGAIN["flags"](found) == flags


def test_of_two_searches_the_better_is_taken(tmp_path: Path) -> None:
    for name, std, score in (("tune-a", 0.4, 3.1), ("tune-b", 1.0, 3.0), ("tune-c", 0.7, 3.2)):
        folder = tmp_path / "weak" / name
        folder.mkdir(parents=True)
        (folder / "tuned.toml").write_text(f"[noise]\nstd = {std}\n")
        (folder / "tune.json").write_text(json.dumps(search(std, score=score)))
    assert FINAL["tuned_in"](tmp_path) == {"weak": {"noise": {"std": 1.0}}}


def write_rates(out: Path, sweep: str, valid: dict[float, float | str]) -> None:
    """Runs of a sweep over learning rates, each with a score or how it ended otherwise."""
    for lr, score in valid.items():
        folder = out / sweep / f"lr-{lr:g}-seed-1110-0123abcd"
        settings: dict[str, Any] = {"seed": 1110, "train": {"lr": lr}}
        if isinstance(score, float):
            write_run(folder, [score], **settings)
            continue
        write_run(folder, [90.0], **settings)
        end(folder, score)


RATES: dict[float, float | str] = {10.0: 90.0, 14.0: 80.0, 20.0: 85.0, 28.0: "diverged"}


@pytest.mark.parametrize("sweep", ["none", "gates"])
def test_a_learning_rate_that_diverged_was_tried(tmp_path: Path, sweep: str) -> None:
    write_rates(tmp_path, sweep, RATES)
    found = FINAL["tuned_in"](tmp_path)
    assert found.keys() == {sweep}
    assert found[sweep]["train"]["lr"] == 14.0


@pytest.mark.parametrize("lacking", [{28.0: "failed"}, {28.0: "pruned"}, {14.0: "failed"}])
def test_a_learning_rate_that_has_not_ended_is_waited_for(
    tmp_path: Path, lacking: dict[float, str]
) -> None:
    write_rates(tmp_path, "none", RATES | lacking)
    assert FINAL["tuned_in"](tmp_path) == {}


def test_learning_rates_that_are_missing_are_waited_for(tmp_path: Path) -> None:
    write_rates(tmp_path, "none", {10.0: 90.0, 14.0: 80.0, 28.0: "diverged"})
    assert FINAL["tuned_in"](tmp_path) == {}


def test_lower_learning_rates_are_wanted_if_all_diverged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rates(tmp_path, "none", dict.fromkeys(RATES, "diverged"))
    write_rates(tmp_path, "gates", RATES)
    assert FINAL["tuned_in"](tmp_path).keys() == {"gates"}
    assert "Add lower ones to results/evidence/none.toml" in capsys.readouterr().out
    write_rates(tmp_path, "none", {5.0: 95.0})
    assert FINAL["tuned_in"](tmp_path)["none"]["train"]["lr"] == 5.0


@pytest.mark.parametrize(
    ("content", "said"), [(None, "has no tuning"), ("{", "is damaged"), ("[1]", "is damaged")]
)
def test_what_cannot_be_read_is_refused(
    content: str | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if content is not None:
        (tmp_path / "tune-a").mkdir()
        (tmp_path / "tune-a" / "tune.json").write_text(content)
    monkeypatch.setattr("sys.argv", ["again.py", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        AGAIN["main"]()
    assert said in capsys.readouterr().err
