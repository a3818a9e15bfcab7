"""The final runs of a question with chosen scores, as files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from noisin.experiments.collection import collect
from noisin.experiments.evidence import points
from noisin.experiments.evidence.questions import QUESTIONS, Question
from noisin.experiments.records import read_run
from tests.experiments.records import write_run

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
    places = dict.fromkeys(question.borrowed, QUESTIONS[0].sweep)
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


def end(folder: Path, state: str) -> None:
    """Change a complete run into one that ended otherwise, as a sweep notes it."""
    (folder / "summary.json").unlink()
    note = {"config": read_run(folder).config.hash(), "message": "the loss is nan", "epochs": 2}
    (folder / f"{state}.json").write_text(json.dumps(note))
