"""A sweep, complete: its points, or what a search chooses them from, and the tasks they make."""

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
class Run:
    """One run, by the name of its folder but for the hash."""

    name: str
    config: RunConfig

    @cached_property
    def digest(self) -> str:
        """The hash of all its settings, by which it is known."""
        return self.config.hash()


@dataclass(frozen=True)
class Task:
    """What one worker does at a time: a run of a grid, or all seeds of a point of a search."""

    point: str
    runs: tuple[Run, ...]


class Point(Section):
    """A name, and all the settings that it stands for, but for the seed."""

    name: str
    settings: dict[str, Any]


class Pruning(Section):
    """Successive halving: after ``min_epochs``, and ``factor`` times as many, and so on, a run goes
    on only if it is among the best ``1 / factor`` of those that have come so far.
    """

    min_epochs: Annotated[Whole, Field(ge=1)] = 1
    factor: Annotated[Whole, Field(ge=2)] = 3


class Sweep(Section):
    """A sweep, complete: what a worker has to know of it."""

    name: str
    seeds: tuple[Annotated[Whole, Field(ge=0, le=LARGEST_SEED)], ...] = ()
    points: tuple[Point, ...] = ()
    settings: dict[str, Any] = Field(default_factory=dict)
    search: Search | None = None
    pruning: Pruning | None = None

    @property
    def digest(self) -> str:
        """The hash of all of it: another one is another sweep. More trials are the same search."""
        content = self.model_dump_json(exclude={"search": {"trials"}})
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def count(self) -> int:
        """How many tasks there are."""
        return len(self.tasks) if self.search is None else self.search.trials

    @property
    def runs_per_task(self) -> int:
        """One of a grid, and one for each seed of a search."""
        return 1 if self.search is None else max(1, len(self.seeds))

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of a grid: every point with every seed."""
        return tuple(
            Task(point.name, (run,))
            for point in self.points
            for run in self._runs(point.name, point.settings)
        )

    def searched(self, values: Mapping[str, Any]) -> Task:
        """The task of a search that has chosen these values."""
        name = describe(values) or self.name
        return Task(name, tuple(self._runs(name, merge(self.settings, nest(values)))))

    def _runs(self, name: str, settings: Mapping[str, Any]) -> Iterator[Run]:
        source = f"point {name}"
        for seed in self.seeds or (None,):
            own = settings if seed is None else merge(settings, {"seed": seed})
            config = RunConfig.parse(own, source)
            yield Run(f"{name}-seed-{config.seed}", config)


def describe(values: Mapping[str, Any]) -> str:
    """A name for a point, made of its settings and fit for a folder; of none, the empty one.

    >>> describe({"noise.family": "gaussian", "noise.std": 0.5, "model.tied": True})
    'gaussian-std-0.5-tied-true'
    >>> describe({"train.tokens": 10**7, "seed": 3})  # every run has its seed at the end
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
