"""The definition of a sweep: its points, or the space that a search draws them from."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from noisin._util.settings import merge, nest
from noisin.experiments.sweep.space import Search
from noisin.training.config import LARGEST_SEED, RunConfig
from noisin.training.config.section import Section, Whole

LONGEST = 60  # characters of a point's name


@dataclass(frozen=True)
class SweepRun:
    """One run, with the name of its folder without the hash."""

    name: str
    config: RunConfig

    @cached_property
    def digest(self) -> str:
        """The hash of all its settings, which identifies it."""
        return self.config.hash()


@dataclass(frozen=True)
class SweepTask:
    """What a worker does at a time: one run of a grid, or all seeds of a point of a search."""

    point: str
    runs: tuple[SweepRun, ...]


class SweepPoint(Section):
    """A name, and all settings of the point except the seed."""

    name: str
    settings: dict[str, Any]


class Pruning(Section):
    """Successive halving: after ``min_epochs``, ``factor`` times as many, and so on, only the best
    ``1 / factor`` of the runs that have reached that epoch continue.
    """

    min_epochs: Annotated[Whole, Field(ge=1)] = 1
    factor: Annotated[Whole, Field(ge=2)] = 3


class Sweep(Section):
    """A complete sweep: all that a worker needs to know about it."""

    name: str
    seeds: tuple[Annotated[Whole, Field(ge=0, le=LARGEST_SEED)], ...] = ()
    points: tuple[SweepPoint, ...] = ()
    settings: dict[str, Any] = Field(default_factory=dict)
    search: Search | None = None
    pruning: Pruning | None = None

    @property
    def digest(self) -> str:
        """Identifies the sweep. The number of trials is left out: more are the same search."""
        content = self.model_dump_json(exclude={"search": {"trials"}})
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def count(self) -> int:
        """The number of tasks."""
        return len(self.tasks) if self.search is None else self.search.trials

    @property
    def runs_per_task(self) -> int:
        """One in a grid, and one for each seed in a search."""
        return 1 if self.search is None else max(1, len(self.seeds))

    @cached_property
    def tasks(self) -> tuple[SweepTask, ...]:
        """The tasks of a grid: every point with every seed."""
        return tuple(
            SweepTask(point.name, (run,))
            for point in self.points
            for run in self._runs(point.name, point.settings)
        )

    def searched(self, values: Mapping[str, Any]) -> SweepTask:
        """The task of a search that has chosen these values."""
        name = describe(values) or self.name
        return SweepTask(name, tuple(self._runs(name, merge(self.settings, nest(values)))))

    def _runs(self, name: str, settings: Mapping[str, Any]) -> Iterator[SweepRun]:
        source = f"point {name}"
        for seed in self.seeds or (None,):
            own = settings if seed is None else merge(settings, {"seed": seed})
            config = RunConfig.parse(own, source)
            yield SweepRun(f"{name}-seed-{config.seed}", config)


def describe(values: Mapping[str, Any]) -> str:
    """A name for a point, made of its settings and valid as a folder; empty without settings.

    >>> describe({"noise.family": "gaussian", "noise.std": 0.5, "model.tied": True})
    'gaussian-std-0.5-tied-true'
    >>> describe({"train.tokens": 10**7, "seed": 3})  # the seed is added to the name of each run
    'tokens-1e07'
    """
    words = []
    for name, value in values.items():
        last = name.rpartition(".")[2]
        if isinstance(value, bool):
            words.append(f"{last}-{str(value).lower()}")
        elif last == "seed":
            continue
        elif isinstance(value, int | float):
            words.append(f"{last}-{value:.6g}".replace("e+", "e"))
        else:
            words.append(str(value))
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(words)).strip("-.")
    return text[:LONGEST].rstrip("-.")
