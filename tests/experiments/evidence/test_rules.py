"""The decisions of the plan, on runs whose scores are chosen so that each must come out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisin.errors import InvalidValue
from noisin.experiments.collection import Collection, collect
from noisin.experiments.evidence import points, verdicts
from noisin.experiments.evidence.extras import extras
from noisin.experiments.evidence.questions import QUESTIONS, Question
from noisin.experiments.evidence.shapes import moments
from noisin.experiments.report.page import render
from noisin.experiments.sweep.reading import read
from noisin.training import evaluations
from noisin.training.config import NoiseConfig
from tests.experiments.records import write_run

A, B, C, D, E = QUESTIONS
ARMS = sorted({arm for question in QUESTIONS for arm in question.arms})
TUNED: dict[str, dict[str, Any]] = {
    arm: {"train": {"lr": 10.0 + i}, "noise": {"std": 0.5}} for i, arm in enumerate(ARMS)
}
TUNED["strong"]["noise"] |= {"feedback": False, "noisy_layers": "last"}
Shift = Callable[[str], float]


def settings_of(question: Question) -> dict[str, Any]:
    """The settings of the arms that are runs of noise of a law or of a size."""
    made = points._made(TUNED)
    return {arm: made.get(arm, {}) for arm in (*question.borrowed, *question.arms)}


def write(
    folder: Path, question: Question, shift: Shift, spread: float = 0.002, **lacks: int
) -> Any:
    """Runs of all arms: log-perplexity 4, the shift of the arm, and a spread over seeds."""
    rng, settings = np.random.default_rng(7), settings_of(question)
    places = dict.fromkeys(question.borrowed, A.sweep)
    places |= dict.fromkeys(question.arms, question.sweep)
    for arm, sweep in places.items():
        seeds = question.seeds[: len(question.seeds) - lacks.get(arm, 0)]
        own = rng.normal(0, spread, len(seeds))
        for seed, error in zip(seeds, own - own.mean(), strict=True):
            place = folder / sweep / f"{arm}-seed-{seed}-0123abcd"
            common = 0.05 * math.sin(seed)  # of initial weights and order
            valid = math.exp(4 + shift(arm) + common + error)
            write_run(place, [valid + 5, valid], seed=seed, **settings[arm])
    return collect(folder)


def shifts(known: Mapping[str, float]) -> Shift:
    return lambda arm: known.get(arm, 0.0)


@pytest.mark.parametrize(
    ("known", "decision"),
    [
        ({"weak": -0.05}, "holds"),
        ({"weak": -0.05, "locked": -0.05}, "holds in part"),
        ({"weak": -0.05, "locked": -0.08}, "holds in part"),
        ({"weak": -0.05, "both": -0.08, "none": -0.08}, "holds"),
        ({}, "does not hold here"),
        ({"weak": 0.05}, "does not hold here"),
        ({"dropout": -0.05}, "does not hold here"),
    ],
)
def test_noise_and_dropout(tmp_path: Path, known: dict[str, float], decision: str) -> None:
    answer = A.answer(write(tmp_path, A, shifts(known)))
    assert answer.decision == decision
    assert len(answer.comparisons) == 11


def test_a_difference_that_seeds_hide_is_none(tmp_path: Path) -> None:
    runs = write(tmp_path, A, shifts({"weak": -0.02}), spread=0.05)
    answer = A.answer(runs)
    assert answer.decision == "does not hold here"
    assert {each.verdict for each in answer.comparisons} == {"not decided"}


def kurtosis(arm: str) -> float:
    made = points._made(TUNED)[arm]
    return moments(NoiseConfig(**made["noise"]))[1]


@pytest.mark.parametrize(
    ("shift", "spread", "decision"),
    [
        (lambda arm: 0.1 * arm.endswith("0.8"), 0.002, "holds"),  # of the variance
        (lambda arm: 0.001 * kurtosis(arm), 0.002, "does not hold here"),
        (lambda arm: 0.03 * (arm == "gumbel-0.4"), 0.002, "does not hold here"),
        (lambda _: 0.0, 0.04, "not decided"),
    ],
)
def test_laws(tmp_path: Path, shift: Shift, spread: float, decision: str) -> None:
    answer = B.answer(write(tmp_path, B, shift, spread))
    assert answer.decision == decision
    assert len(answer.comparisons) == 18


def test_the_effect_of_the_shape_is_what_it_is(tmp_path: Path) -> None:
    answer = B.answer(write(tmp_path, B, lambda arm: 0.003 * kurtosis(arm), spread=1e-6))
    assert answer.effects["kurtosis"].value == pytest.approx(0.003, rel=1e-3)
    assert answer.effects["skewness"].value == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(
    ("known", "decision"),
    [
        ({"mean-0.8": 0.03, "mean-1.25": 0.04}, "holds"),
        ({"mean-0.8": 0.03}, "holds in part"),
        ({"rescaled-0.8": 0.03, "gates": 0.05}, "does not hold here"),
        ({"mean-0.8": -0.03, "mean-1.25": -0.04}, "does not hold here"),
    ],
)
def test_bias(tmp_path: Path, known: dict[str, float], decision: str) -> None:
    answer = C.answer(write(tmp_path, C, shifts(known)))
    assert answer.decision == decision
    assert len(answer.comparisons) == 6


@pytest.mark.parametrize(
    ("known", "spread", "decision"),
    [
        ({}, 0.002, "holds"),
        ({"penalty-same-std": 0.1}, 0.002, "holds"),  # it was not tuned
        ({"output": 0.03}, 0.002, "does not hold here"),
        ({"samples-16": -0.03}, 0.002, "does not hold here"),
        ({}, 0.04, "not decided"),
    ],
)
def test_the_theorem(tmp_path: Path, known: dict[str, float], spread: float, decision: str) -> None:
    assert D.answer(write(tmp_path, D, shifts(known), spread)).decision == decision


def best_std(slope: float) -> Shift:
    """Parabolas in log std whose lowest points are a power of the width."""

    def shift(arm: str) -> float:
        _, width, _, _, _, std = arm.split("-")
        best = math.log(0.4) + slope * math.log(int(width) / 181)
        return 0.2 * (math.log(float(std)) - best) ** 2

    return shift


@pytest.mark.parametrize(
    ("slope", "spread", "decision"),
    [
        (0.4, 0.002, "holds"),
        (-0.4, 0.002, "does not hold here"),
        (0.0, 0.002, "not decided"),
        (0.2, 0.6, "not decided"),
    ],
)
def test_sizes(tmp_path: Path, slope: float, spread: float, decision: str) -> None:
    answer = E.answer(write(tmp_path, E, best_std(slope), spread))
    assert answer.decision == decision
    if spread < 0.01:
        found = answer.effects["log std by log width"]
        assert found.low <= slope <= found.high
        assert found.value == pytest.approx(slope, abs=0.05)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.letter)
def test_a_run_that_is_missing_leaves_it_open(tmp_path: Path, question: Question) -> None:
    last = question.arms[-1]
    answer = question.answer(write(tmp_path, question, shifts({}), **{last: 1}))
    assert (answer.decision, answer.lacking) == ("open", {last: 1})
    assert answer.comparisons == ()


def test_what_diverged_is_said_and_the_others_count(tmp_path: Path) -> None:
    write(tmp_path, C, shifts({"mean-0.8": 0.03, "mean-1.25": 0.04}))
    lost = next((tmp_path / C.sweep).glob(f"mean-0.8-seed-{C.seeds[2]}-*"))
    (lost / "summary.json").unlink()
    (run,) = [run for run in collect(tmp_path) if run.folder == lost]
    (lost / "diverged.json").write_text(
        f'{{"config": "{run.config.hash()}", "message": "the loss is nan", "session": ""}}'
    )
    runs = collect(tmp_path)
    answer = C.answer(runs)
    assert answer.decision == "holds"
    assert answer.arms["mean-0.8"].diverged == (C.seeds[2],)
    (sheet,) = verdicts.details(runs)
    (row,) = [row for row in sheet.rows if row[0] == "mean-0.8"]
    assert row[1] == "7"
    assert row[-1] == "1 diverged"


def test_the_tables(tmp_path: Path) -> None:
    runs = write(tmp_path, A, shifts({"weak": -0.05}))
    rows = {row[0]: row for row in verdicts.summary(runs).rows}
    assert rows["A"][3] == "holds"
    assert {rows[letter][3] for letter in "BCDE"} == {"open"}
    assert rows["E"][4] == "60"  # runs to go
    assert rows["A"][5] == f"{96 * 20 / 3600:.1f}"  # core-hours: 20 seconds each
    (sheet,) = verdicts.details(runs)
    weak, none = sheet.rows[0], sheet.rows[1]
    assert weak[:4] == ("weak", "8", weak[2], "-")
    assert none[0] == "none"
    assert none[4].startswith("+5.1 % (")
    assert none[6] == "worse"


def test_the_report_shows_them(tmp_path: Path) -> None:
    runs = write(tmp_path, C, shifts({"mean-0.8": 0.03}))
    page = render(runs, tmp_path)
    assert '<h2 id="claims"' in page
    assert "<td>holds in part</td>" in page
    assert "C. Does unbiasedness matter?" in page
    assert "The paper’s claims" not in render(Collection(), tmp_path)


def test_what_else_was_measured(tmp_path: Path) -> None:
    runs = write(tmp_path, A, shifts({"weak": -0.05, "zoneout": -0.02}))
    assert extras(runs) is None
    plain: dict[str, Any] = {
        "split": "test",
        "method": "exact",
        "weights": "raw",
        "checkpoint": "best",
    }
    plain |= {"epoch": 2, "count": 10, "seconds": 1.0, "temperature": 1.0}
    for run in runs:
        arm, seed = run.folder.name.split("-seed-")[0], run.config.seed
        gain = -0.1 if arm == "weak" else 0.0
        lines = [
            {"nats": 4 + gain, "calibration": {"error": 0.02 + gain / 10}},
            {"nats": 4.2 + gain, "unknown": 0.05},
            {"nats": 3.9, "temperature": 1.1 + 0.001 * (seed % 2), "tuned": {}},
            {"nats": 1.0, "split": "valid"},
            {"nats": 2.0, "checkpoint": "last"},
        ]
        if arm == "weak":
            lines.append({"nats": 3.8, "method": "arithmetic"})
        for line in lines:
            evaluations.add(run.folder, plain | line)
    sheet = extras(collect(tmp_path))
    assert sheet is not None
    assert sheet.heads[1:4] == ("none", "zoneout", "weak")
    rows = {row[0]: row[1:] for row in sheet.rows}
    assert rows["calibration error, %"][:3] == ("2.00 ± 0.00", "2.00 ± 0.00", "1.00 ± 0.00")
    assert rows["calibration error, %"][3] == "-1.00 (-1.00 to -1.00)"
    assert rows["best temperature on valid"][0] == "1.10 ± 0.00"
    assert rows["test"][2] == f"{math.exp(3.9):.2f} ± 0.00"
    assert rows["test, 5 % of the inputs unknown"][1] == f"{math.exp(4.2):.2f} ± 0.00"
    assert "test, 20 % of the inputs unknown" not in rows
    assert rows["test, ensemble of noise"] == ("-", "-", f"{math.exp(3.8):.2f} ± 0.00", "-", "-")


def test_a_sweep_has_the_arms_of_its_question(tmp_path: Path) -> None:
    for question in QUESTIONS:
        path = tmp_path / f"{question.sweep}.toml"
        path.write_text(points.sweep(question, TUNED))
        found = read(str(path))
        assert [point.name for point in found.points] == [*question.arms]
        assert found.seeds == question.seeds
        assert {run.config.threads for task in found.tasks for run in task.runs} == {1}


def test_an_arm_that_is_not_tuned() -> None:
    known = {arm: settings for arm, settings in TUNED.items() if arm != "zoneout"}
    with pytest.raises(InvalidValue, match="arm zoneout of question A is not tuned"):
        points.sweep(A, known)
