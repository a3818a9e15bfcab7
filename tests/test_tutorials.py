"""The tutorials run, as the documentation executes them, and print what their text says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from noisin import objective

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
CELL = re.compile(r"^```\{code-cell\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def executed(name: str) -> dict[str, Any]:
    """The names that the cells of a tutorial define, run one after the other."""
    names: dict[str, Any] = {}
    for cell in CELL.findall((TUTORIALS / f"{name}.md").read_text(encoding="utf-8")):
        exec(compile(cell, f"{name}.md", "exec"), names)
    return names


def test_every_tutorial_is_tested() -> None:
    tested = {name.removeprefix("test_").replace("_", "-") for name in globals()}
    assert {path.stem for path in TUTORIALS.glob("*.md")} <= tested


def test_drop_in() -> None:
    curves = {name: curve for name, (_, curve) in executed("drop-in")["fitted"].items()}
    plain, noisy = curves["none"], curves["Gaussian, std 1"]
    assert plain[-1][1] > 1.04 * min(valid for _, valid in plain), "it overfits without noise"
    assert noisy[-1][1] - noisy[-1][0] < 0.5 * (plain[-1][1] - plain[-1][0]), "and less with it"
    assert noisy[-1][1] < plain[-1][1]


def test_own_text() -> None:
    found = executed("own-text")
    for record in found["records"].values():
        assert record.summary["best"]["test"]["nats"] < 6.5
    assert len(found["restored"].vocab) > 100


def test_theory(capsys: pytest.CaptureFixture[str]) -> None:
    executed("theory")
    printed = capsys.readouterr().out
    assert "feedback=False, last" in printed
    assert "gamma 1.0: closed form" in printed


def test_forecasting() -> None:
    found = executed("forecasting")
    target = found["target"]
    covers = {
        name: objective.forecast(found["model"], draw, K=100).coverage(target, 0.9)
        for name, draw in found["spread"].items()
    }
    assert covers["noise alone"] < 0.7
    assert 0.86 < covers["noise and Poisson"] < 0.96
