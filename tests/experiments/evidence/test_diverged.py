"""The decisions of the plan where runs diverged: what cannot be compared is not decided."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from noisin.experiments.collection import Collection, collect
from noisin.experiments.evidence import verdicts
from noisin.experiments.evidence.questions import QUESTIONS, Question
from noisin.experiments.evidence.rules import DROPOUTS
from tests.experiments.evidence.test_rules import best_std
from tests.experiments.evidence.written import Shift, end, shifts, write

A, B, C, D, E = QUESTIONS


def lost(folder: Path, question: Question, shift: Shift, diverged: Mapping[str, int]) -> Collection:
    """Runs of all arms, of which the first seeds of some diverged."""
    write(folder, question, shift)
    for arm, count in diverged.items():
        sweep = A.sweep if arm in question.borrowed else question.sweep
        for run in sorted((folder / sweep).glob(f"{arm}-seed-*"))[:count]:
            end(run, "diverged")
    return collect(folder)


WEAK_IS_BEST = shifts({"weak": -0.05})


@pytest.mark.parametrize(
    ("shift", "diverged", "decision"),
    [
        (WEAK_IS_BEST, {"weak": 8}, "not decided"),
        (WEAK_IS_BEST, dict.fromkeys(DROPOUTS, 8), "not decided"),
        (WEAK_IS_BEST, {"dropout": 8, "additive": 7}, "holds"),  # better than the best of the rest
        (shifts({"weak": -0.05, "locked": -0.08}), {"locked": 7}, "not decided"),
        (shifts({"weak": -0.05, "locked": -0.08}), {"dropout": 8}, "not decided"),
        (shifts({"weak": -0.05, "locked": -0.08}), {"locked": 2}, "holds in part"),
    ],
)
def test_noise_and_dropout(
    tmp_path: Path, shift: Shift, diverged: dict[str, int], decision: str
) -> None:
    assert A.answer(lost(tmp_path, A, shift, diverged)).decision == decision


@pytest.mark.parametrize(
    ("known", "diverged", "decision"),
    [
        ({}, {"gumbel-0.8": 7}, "not decided"),
        ({}, {"gumbel-0.8": 6}, "holds"),
        ({"beta-0.4": 0.03}, {"gumbel-0.8": 8}, "does not hold here"),
        ({}, {arm: 8 for arm in B.arms if arm.endswith("0.8")}, "not decided"),  # of the variance
        ({}, dict.fromkeys(B.arms, 8), "not decided"),
    ],
)
def test_laws(
    tmp_path: Path, known: dict[str, float], diverged: dict[str, int], decision: str
) -> None:
    assert B.answer(lost(tmp_path, B, shifts(known), diverged)).decision == decision


@pytest.mark.parametrize(
    ("known", "diverged", "decision"),
    [
        ({}, {"mean-0.8": 8, "mean-1.25": 8}, "not decided"),
        ({"mean-0.8": 0.03}, {"mean-1.25": 7}, "not decided"),
        ({"mean-0.8": 0.03, "mean-1.25": 0.04}, {"weak": 8}, "not decided"),
        ({"mean-0.8": 0.03, "mean-1.25": 0.04}, {"gates": 8}, "holds"),  # says nothing of the mean
    ],
)
def test_bias(
    tmp_path: Path, known: dict[str, float], diverged: dict[str, int], decision: str
) -> None:
    assert C.answer(lost(tmp_path, C, shifts(known), diverged)).decision == decision


@pytest.mark.parametrize(
    ("known", "diverged", "decision"),
    [
        ({}, {"output": 8, "penalty": 7}, "not decided"),
        ({}, {"strong": 8}, "not decided"),
        ({}, {"output": 6}, "holds"),
        ({}, {"penalty-same-std": 8}, "holds"),  # it was not tuned
        ({"samples-4": 0.03}, {"output": 8}, "does not hold here"),
    ],
)
def test_the_theorem(
    tmp_path: Path, known: dict[str, float], diverged: dict[str, int], decision: str
) -> None:
    assert D.answer(lost(tmp_path, D, shifts(known), diverged)).decision == decision


STDS_OF_512 = [arm for arm in E.arms if arm.startswith("width-512")]


@pytest.mark.parametrize(
    ("diverged", "decision"),
    [
        (dict.fromkeys(STDS_OF_512[2:], 2), "not decided"),  # two points do not make a parabola
        (dict.fromkeys(STDS_OF_512[2:], 1), "holds"),  # of the other seed
        (dict.fromkeys(STDS_OF_512[3:], 2), "holds"),
        ({arm: 2 for arm in E.arms if "text-0.25" in arm}, "holds"),
    ],
)
def test_sizes(tmp_path: Path, diverged: dict[str, int], decision: str) -> None:
    answer = E.answer(lost(tmp_path, E, best_std(0.4), diverged))
    assert answer.decision == decision


def test_what_diverged_is_said_and_the_others_count(tmp_path: Path) -> None:
    known = {"mean-0.8": 0.03, "mean-1.25": 0.04}
    runs = lost(tmp_path, C, shifts(known), {"mean-0.8": 1, "gates": 7})
    answer = C.answer(runs)
    assert answer.decision == "holds"
    assert answer.arms["mean-0.8"].diverged == C.seeds[:1]
    (sheet,) = verdicts.details(runs)
    rows = {row[0]: row for row in sheet.rows}
    assert [rows["mean-0.8"][i] for i in (1, 3, 7)] == ["7", "weak", "1 diverged"]
    assert [rows["gates"][i] for i in (1, 3, 7)] == ["1", "-", "7 diverged"]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.letter)
def test_what_cannot_be_compared_is_named(tmp_path: Path, question: Question) -> None:
    runs = lost(tmp_path, question, shifts({}), dict.fromkeys(question.arms, 8))
    assert question.answer(runs).decision == "not decided"
    sheet, *_ = verdicts.details(runs)
    found = {row[0]: row[-1] for row in sheet.rows}
    assert found == dict.fromkeys(question.arms, f"{len(question.seeds)} diverged")
