"""The state of a sweep: what has ended, what is left, and a table of its points."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from noisin._util.files import write_atomically
from noisin.experiments.seeds import Mean
from noisin.experiments.sweep.definition import SweepRun, SweepTask
from noisin.experiments.sweep.outcome import Outcome
from noisin.tasks.unit import PERPLEXITY, Unit


@dataclass(frozen=True)
class Standing:
    """The state of a task. ``task`` is None until a search has chosen its settings."""

    task: SweepTask | None
    outcomes: tuple[Outcome, ...] = ()

    @property
    def runs(self) -> list[tuple[SweepRun, Outcome]]:
        """Its runs, each with its state."""
        return list(zip(self.task.runs, self.outcomes, strict=True)) if self.task else []

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to do."""
        states = [outcome.state for outcome in self.outcomes]
        return bool(states) and (
            any(state in ("diverged", "pruned", "failed") for state in states)
            or all(state == "complete" for state in states)
        )


@dataclass(frozen=True)
class PointRow:
    """A point at the best epochs of its seeds.

    Attributes:
        point: its name.
        valid, test: scores of the complete runs; None if there are none.
        unfinished: the number of runs whose best epoch is the last one: more could be better.
        diverged, pruned, failed: the number of runs that ended this way.
        unit: the unit of the scores; None if no run is complete.
    """

    point: str
    valid: Mean | None
    test: Mean | None
    unfinished: int
    diverged: int
    pruned: int
    failed: int
    unit: Unit | None = None

    def shown(self, score: Mean | None) -> str:
        """A score in the digits of its unit."""
        return "-" if score is None else score.shown(self.unit or PERPLEXITY)


def point_rows(standings: Iterable[Standing]) -> list[PointRow]:
    """One row for each point with a run that has ended in any way, the best first."""
    by_point: dict[str, list[Outcome]] = {}
    for standing in standings:
        name = standing.task.point if standing.task else "(refused)"
        ends = [end for end in standing.outcomes if end.state != "open"]
        if ends:
            by_point.setdefault(name, []).extend(ends)
    rows = [_row(name, ends) for name, ends in by_point.items()]
    return sorted(rows, key=lambda row: math.inf if row.valid is None else row.valid.mean)


def _row(name: str, ends: Sequence[Outcome]) -> PointRow:
    complete = [end.row for end in ends if end.row is not None]
    states = Counter(end.state for end in ends)
    return PointRow(
        point=name,
        valid=_mean([row.valid for row in complete]),
        test=_mean([row.test for row in complete]),
        unfinished=sum(row.best_epoch == row.epochs for row in complete),
        diverged=states["diverged"],
        pruned=states["pruned"],
        failed=states["failed"],
        unit=complete[0].unit if complete else None,
    )


def _mean(values: Sequence[float | None]) -> Mean | None:
    return Mean.of([math.inf if v is None else v for v in values]) if values else None


def write_rows(rows: Sequence[PointRow], path: Path) -> None:
    """Write the rows next to the runs, as JSON, with null for infinity."""
    content = [asdict(row) for row in rows]
    for row in content:
        for mean in filter(None, (row["valid"], row["test"])):
            mean["mean"] = mean["mean"] if math.isfinite(mean["mean"]) else None
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())


class SweepProgress:
    """How much of a sweep is done, and how long the rest takes at the speed of this session.

    Args:
        runs: the number of runs of the sweep.
        runs_per_task: all runs of a task count as done once the task has ended.
    """

    def __init__(self, runs: int, runs_per_task: int) -> None:
        self.runs, self.runs_per_task = runs, runs_per_task
        self._began = time.monotonic()
        self._before: int | None = None  # runs that had ended when this session began
        self._begun: dict[str, float] = {}  # by name, the part of a run done before this session

    def over(self, standings: Iterable[Standing]) -> int:
        """The number of runs that have ended or will not be made."""
        return sum(
            self.runs_per_task
            if standing.is_over
            else sum(end.state != "open" for end in standing.outcomes)
            for standing in standings
        )

    def seconds_left(
        self, standings: Iterable[Standing], statuses: Sequence[Mapping[str, Any]]
    ) -> float:
        """The time until the end at the speed so far, with the parts of active runs counted."""
        over = self.over(standings)
        if self._before is None:
            self._before = over
        for status in statuses:
            self._begun.setdefault(status["run"], status["begun"])
        done = over + sum(status.get("done", status["begun"]) for status in statuses)
        made = done - self._before - sum(self._begun.values())
        elapsed = time.monotonic() - self._began
        left = max(0.0, self.runs - done)  # a run that another machine has made counts twice
        return elapsed * left / made if made > 0 else math.inf
