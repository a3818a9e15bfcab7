"""Every example runs, and does what it says."""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
from pathlib import Path
from types import ModuleType

import pytest

from noisin.testing import NoiseContract

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name: str) -> ModuleType:
    return importlib.import_module(f"examples.{name}")


def test_all_examples_are_tested() -> None:
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= tested


def test_quickstart(capsys: pytest.CaptureFixture[str]) -> None:
    results = load("quickstart").main(num_epochs=2)
    assert len(results) == 2
    for runs in results.values():
        assert [len(run.test) for run in runs] == [2, 2, 2]
        assert all(4.31 < value < 12 for run in runs for value in run.test)
    printed = capsys.readouterr().out
    assert "below 4.31" in printed
    assert "± " in printed


def test_drop_in() -> None:
    assert load("drop_in").main(num_epochs=60) > 0.6


def test_convert_model() -> None:
    assert load("convert_model").main(num_epochs=30) < 0.6  # the waves' own variance


def test_own_noise() -> None:
    module = load("own_noise")
    assert module.main(num_epochs=1) > 0
    contract = module.TestSpikes()
    for name in dir(NoiseContract):
        if name.startswith("test_"):
            getattr(contract, name)()


def test_own_cell() -> None:
    assert load("own_cell").main(num_epochs=120) > 0.3


def test_own_loop(capsys: pytest.CaptureFixture[str]) -> None:
    (valid,) = load("own_loop").main(num_epochs=1)
    assert valid < 163  # what knowing how often each word occurs comes to
    assert len(capsys.readouterr().out.splitlines()[-1].split()) == 30


def test_own_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = load("own_model").main(str(tmp_path / "run"), epochs=2)
    assert len(record.metrics) == 2
    assert "nats per hour, after epoch" in capsys.readouterr().out


@pytest.mark.parametrize("data", ["made up", "real"])
def test_poisson_counts(
    data: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bikes: Path
) -> None:
    if data == "made up":
        monkeypatch.delenv("NOISIN_DATA", raising=False)
    elif not bikes.exists():
        pytest.skip("NOISIN_DATA does not hold bike-sharing/hour.csv")
    results = load("poisson_counts").main(num_epochs=20)
    assert all(math.isfinite(nats) for nats in results.values())
    assert ("bike rentals" if data == "real" else "made-up counts") in capsys.readouterr().out


@pytest.fixture
def bikes() -> Path:
    return Path(os.environ.get("NOISIN_DATA", "nowhere")) / "bike-sharing" / "hour.csv"


@pytest.mark.filterwarnings("ignore")
def test_lightning_module(capsys: pytest.CaptureFixture[str]) -> None:
    """Lightning is no dependency: without it the example says so, with it the noise anneals."""
    loss = load("lightning_module").main(num_epochs=1)
    if importlib.util.find_spec("lightning") is None:
        assert loss is None
        assert "pip install lightning" in capsys.readouterr().out
    else:
        assert loss is not None
        assert loss < 0.7
