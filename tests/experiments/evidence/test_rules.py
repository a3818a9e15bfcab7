"""The decisions of the plan, on runs whose scores are chosen so that each must come out."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from noisin.errors import InvalidValue
from noisin.experiments.collection import Collection, collect
from noisin.experiments.evidence import points, verdicts
from noisin.experiments.evidence.questions import QUESTIONS, Question
from noisin.experiments.evidence.shapes import moments
from noisin.experiments.report.page import render
from noisin.experiments.sweep.reading import read
from noisin.training.config import NoiseConfig
from tests.experiments.evidence.written import TUNED, Shift, shifts, write
from tests.experiments.records import write_run

A, B, C, D, E = QUESTIONS


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


@pytest.mark.parametrize(
    ("tuned", "letter"),
    [
        ("dropout/tune-base-1a2b3c4d/tuned-00112233", "A"),
        ("weak/tune-base-1a2b3c4d/tuned-00112233", "A"),  # C has it too
        ("none/lr-10-seed-1110-0123abcd", "A"),
        ("gates/lr-10-seed-1110-0123abcd", "C"),
        ("mean-0.8/tune-base-1a2b3c4d/tuned-00112233", "C"),
        ("penalty/tune-base-1a2b3c4d/tuned-00112233", "D"),
        ("tuning/tune-base-1a2b3c4d/tuned-00112233", ""),
        ("dropout/lr-10-seed-1110-0123abcd", ""),
    ],
)
def test_tuning_costs_one_question(tmp_path: Path, tuned: str, letter: str) -> None:
    write_run(tmp_path / "runs" / "evidence" / tuned, [90.0] * 36)  # of 360 seconds
    rows = verdicts.summary(collect(tmp_path)).rows
    assert {row[0]: row[5] for row in rows if row[5] != "0.0"} == dict.fromkeys(letter, "0.1")


def test_the_report_shows_them(tmp_path: Path) -> None:
    runs = write(tmp_path, C, shifts({"mean-0.8": 0.03}))
    page = render(runs, tmp_path)
    assert '<h2 id="claims"' in page
    assert "<td>holds in part</td>" in page
    assert "C. Does unbiasedness matter?" in page
    assert "The paper’s claims" not in render(Collection(), tmp_path)


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
