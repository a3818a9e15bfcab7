"""The final runs of a question: for each arm a run of every seed, in the folder of a sweep."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from noisin.experiments.paired import Paired, Verdict, holm
from noisin.experiments.records import Run

MARGIN = 0.01  # of log-perplexity: arms that differ by less are equal


@dataclass(frozen=True)
class Arm:
    """The complete runs of a point of a sweep, by seed, and the seeds whose run diverged."""

    name: str
    runs: Mapping[int, Run]
    diverged: tuple[int, ...] = ()

    def scores(self, split: Literal["valid", "test"]) -> dict[int, float]:
        """The log-perplexity of each seed, of the weights that are better on valid."""
        name = "best_valid" if split == "valid" else "test"
        bests = {seed: run.best for seed, run in self.runs.items()}
        known = {seed: best[name] for seed, best in bests.items() if best is not None}
        return {seed: math.log(score) for seed, score in known.items() if score is not None}

    @property
    def valid(self) -> float:
        """The mean log-perplexity on valid."""
        scores = self.scores("valid")
        return math.fsum(scores.values()) / len(scores) if scores else math.inf


def arms_of(runs: Iterable[Run], sweep: str) -> dict[str, Arm]:
    """The arms of a sweep by name, from the folders ``SWEEP/NAME-seed-SEED-HASH`` of its runs."""
    complete: dict[str, dict[int, Run]] = {}
    diverged: dict[str, list[int]] = {}
    for run in in_sweep(runs, sweep):
        name = run.folder.name.rpartition("-seed-")[0]
        complete.setdefault(name, {})
        if run.complete:
            complete[name][run.config.seed] = run
        elif run.diverged is not None:
            diverged.setdefault(name, []).append(run.config.seed)
    return {name: Arm(name, some, tuple(diverged.get(name, ()))) for name, some in complete.items()}


def in_sweep(runs: Iterable[Run], sweep: str) -> list[Run]:
    """The runs of a sweep."""
    return [run for run in runs if run.folder.parent.name == sweep]


@dataclass(frozen=True)
class ArmComparison:
    """An arm and the one it is compared with, over the seeds of both.

    Attributes:
        arm, against: their names.
        paired: the differences of log-perplexity on test; above zero, the arm is worse.
        p: corrected for the number of comparisons of the question.
    """

    arm: str
    against: str
    paired: Paired
    p: float

    @property
    def verdict(self) -> Verdict:
        """``lower`` if the arm is better, ``higher`` if it is worse."""
        return self.paired.verdict(self.p)


def compare(arms: Mapping[str, Arm], pairs: Iterable[tuple[str, str]]) -> list[ArmComparison]:
    """Compare pairs of arms, with Holm's correction over all of them.

    Arms that diverged and have fewer than two seeds in common with the other are left out, so each
    rule checks that the comparisons that it needs are there.
    """
    found: dict[tuple[str, str], Paired] = {}
    for one, other in pairs:
        scores = arms[one].scores("test"), arms[other].scores("test")
        if len(scores[0].keys() & scores[1].keys()) > 1:
            found[one, other] = Paired.of(*scores, MARGIN)
    corrected = holm([paired.p for paired in found.values()])
    return [
        ArmComparison(*names, paired, p)
        for (names, paired), p in zip(found.items(), corrected, strict=True)
    ]


def missing(arms: Mapping[str, Arm], names: Iterable[str], seeds: Sequence[int]) -> dict[str, int]:
    """How many runs each arm still lacks; a run that diverged is not made again."""
    lacking = {}
    for name in names:
        arm = arms.get(name, Arm(name, {}))
        if open_seeds := {*seeds} - {*arm.runs} - {*arm.diverged}:
            lacking[name] = len(open_seeds)
    return lacking
