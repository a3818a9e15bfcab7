"""Question F, on evaluations that are made up: which of them count, and the table of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from noisin.experiments.collection import collect
from noisin.experiments.evidence.extras import extras
from noisin.experiments.evidence.questions import QUESTIONS
from noisin.training import evaluations
from tests.experiments.evidence.written import shifts, write

Lines = Iterable[Mapping[str, Any]]
A = replace(QUESTIONS[0], arms=("none", "dropout", "zoneout", "weak"))  # what is shown, and a rival
OF_BEST = {"split": "test", "checkpoint": "best", "weights": "raw", "epoch": 2}
STATIC = {"method": "exact", "temperature": 1.0, "batch_size": 10, "count": 10, "seconds": 1.0}


def rows(folder: Path, lines_of: Callable[[str, int], Lines]) -> dict[str, tuple[str, ...]]:
    """The table, of runs with the evaluations that a function has for their arm and seed."""
    runs = write(folder, A, shifts({"weak": -0.05, "zoneout": -0.02}))
    assert extras(runs) is None
    for run in runs:
        arm = run.folder.name.split("-seed-")[0]
        for line in lines_of(arm, run.config.seed):
            evaluations.add(run.folder, {**OF_BEST, **STATIC, **line})
    sheet = extras(collect(folder))
    assert sheet is not None
    assert sheet.heads[1:4] == ("none", "zoneout", "weak")
    return {row[0]: row[1:] for row in sheet.rows}


def test_what_else_was_measured(tmp_path: Path) -> None:
    def lines_of(arm: str, seed: int) -> Lines:
        gain = -0.1 if arm == "weak" else 0.0
        yield {"nats": 4 + gain, "calibration": {"error": 0.02 + gain / 10}}
        yield {"nats": 4.2 + gain, "unknown": 0.05}
        yield {"nats": 3.9, "temperature": 1.1 + 0.001 * (seed % 2), "tuned": {}}
        if arm == "weak":
            yield {"nats": 3.8, "method": "arithmetic", "K": 16}

    found = rows(tmp_path, lines_of)
    assert found["calibration error, %"][:3] == ("2.00 ± 0.00", "2.00 ± 0.00", "1.00 ± 0.00")
    assert found["calibration error, %"][3] == "-1.00 (-1.00 to -1.00)"
    assert found["best temperature on valid"][0] == "1.10 ± 0.00"
    assert found["test"][2] == f"{math.exp(3.9):.2f} ± 0.00"
    assert found["test, 5 % of the inputs unknown"][1] == f"{math.exp(4.2):.2f} ± 0.00"
    assert "test, 20 % of the inputs unknown" not in found
    assert found["test, ensemble of noise"] == ("-", "-", f"{math.exp(3.8):.2f} ± 0.00", "-", "-")


def test_a_best_temperature_of_1_is_one(tmp_path: Path) -> None:
    found = rows(tmp_path, lambda *_: [{"nats": 4.0, "tuned": {}}])
    assert found["best temperature on valid"][0] == "1.00 ± 0.00"
    assert found["test"][0] == f"{math.exp(4):.2f} ± 0.00"


MEASURED: Lines = (
    {"nats": 4.0, "calibration": {"error": 0.02}},
    {"nats": 3.9, "temperature": 1.1, "tuned": {}},
    {"nats": 4.2, "unknown": 0.1},
    {"nats": 3.8, "method": "arithmetic", "K": 16},
)
CALIBRATED = {"nats": 1.0, "calibration": {"error": 0.5}}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, ...]]:
    return rows(tmp_path_factory.mktemp("measured"), lambda *_: MEASURED)


@pytest.mark.parametrize(
    "other",
    [
        {"nats": 1.0, "dynamic": {"lr": 1e-4}},
        {"nats": 1.0, "cache": {"window": 500}},
        {"nats": 1.0, "cache": {}, "temperature": 1.3, "tuned": {}},
        {"nats": 1.0, "temperature": 1.3},
        {"nats": 1.0, "temperature": 1.3, "unknown": 0.1, "tuned": {}},
        {"nats": 1.0, "unknown": 0.1, "dynamic": {}},
        {"nats": 1.0, "method": "arithmetic", "K": 16, "temperature": 1.3},
        {"nats": 1.0, "method": "arithmetic", "K": 10},
        CALIBRATED | {"temperature": 1.3},
        CALIBRATED | {"unknown": 0.3},
        CALIBRATED | {"split": "valid"},
        CALIBRATED | {"checkpoint": "last"},
        CALIBRATED | {"weights": "averaged"},
        CALIBRATED | {"epoch": 1},
        CALIBRATED | {"batch_size": 1},
    ],
    ids=str,
)
def test_evaluations_with_other_settings_change_nothing(
    tmp_path: Path, measured: dict[str, tuple[str, ...]], other: dict[str, Any]
) -> None:
    """Though they are newer."""
    assert len(measured) == 5  # the first evaluation is of calibration and of test
    assert rows(tmp_path, lambda *_: [*MEASURED, other]) == measured
