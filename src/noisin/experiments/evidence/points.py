"""The final sweeps of the questions, made of the settings that tuning has found for their arms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noisin._util import toml
from noisin._util.settings import merge
from noisin.errors import InvalidValue
from noisin.experiments.evidence import rules
from noisin.experiments.evidence.questions import Question
from noisin.experiments.tuning.tunable import dropout_rate

Settings = Mapping[str, Any]
LR = 20.0  # of the question about sizes
LRS = (10.0, 14.0, 20.0, 28.0)  # of the arms that have nothing else to tune
TUNING_SEED = 1110
# What all runs have in common: results/evidence/base.toml.
COMMON: Settings = {
    "base": "manual",
    "threads": 1,
    "train": {"averaging": "from_start", "epochs": 40, "patience": 8},
}
_CLASSES = {
    "two-point": "noisin.noise.others:TwoPoint",
    "student-t": "noisin.noise.others:StudentT",
}


def sweep(question: Question, tuned: Mapping[str, Settings]) -> str:
    """The TOML file of the final sweep of a question.

    Args:
        question: the question.
        tuned: the settings that tuning has found, by arm; arms of other questions may be there.
    """
    made = _made(tuned)
    points = []
    for arm in question.arms:
        if (settings := made.get(arm, tuned.get(arm))) is None:
            raise InvalidValue(
                f"evidence: the arm {arm} of question {question.letter} is not tuned."
            )
        points.append({"name": arm, **_own(settings)})
    head = f"# Question {question.letter} of section 3 of results/PLAN.md: {question.words}\n\n"
    return head + toml.dumps({**COMMON, "seeds": [*question.seeds], "points": points}) + "\n"


def gates(std: float) -> dict[str, Any]:
    """The sweep over learning rates of dropout in the gates, with the std of a noise.

    >>> gates(0.5)["model"]
    {'gate_dropout': {'x': 0.2, 'h': 0.2}}
    """
    p = dropout_rate(std)
    rates = {"gate_dropout": {"x": p, "h": p}}
    return {**COMMON, "seeds": [TUNING_SEED], "model": rates, "grid": {"train": {"lr": [*LRS]}}}


def _own(settings: Settings) -> dict[str, Any]:
    """The settings of a point without what all points have."""
    return {name: value for name, value in settings.items() if name not in ("seed", "threads")}


def _made(tuned: Mapping[str, Settings]) -> dict[str, Settings]:
    """The arms that are not tuned themselves, as far as those that they depend on are."""
    sizes = [(*size, std) for size in rules.SIZES for std in rules.STDS]
    arms = {rules.size_arm(*size): _sized(*size) for size in sizes}
    if (weak := tuned.get(rules.WEAK)) is not None:
        lr = {"train": {"lr": weak["train"]["lr"]}}
        for law in rules.LAWS:
            for std in rules.STDS_OF_LAWS:
                noise = {"noise": {"family": _CLASSES.get(law, law), "std": std}}
                arms[rules.law_arm(law, std)] = merge(lr, noise)
    if (strong := tuned.get(rules.STRONG)) is not None:
        arms[rules.SAME_STD] = merge(strong, {"train": {"objective": "penalty"}})
        for K in (4, 16):
            arms[f"samples-{K}"] = merge(strong, {"train": {"K": K}})
    return arms


def _sized(width: int, fraction: float, std: float) -> Settings:
    return {
        "data": {"fraction": fraction},
        "model": {"hidden_size": width},
        "noise": {"family": "gaussian", "std": std},
        "train": {"lr": LR},
    }
