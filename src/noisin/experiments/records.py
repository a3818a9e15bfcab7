"""What the record of a run says, and by which settings runs compare."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from noisin.training.config import RunConfig
from noisin.training.schedule import Schedule, Weights

End = Literal["diverged", "pruned", "failed"]


@dataclass(frozen=True)
class Run:
    """What the record of a run says.

    Attributes:
        name: its folder, as seen from the folder that was searched.
        folder: its folder.
        config: its settings.
        environment: what it ran on and with.
        metrics: one dict per epoch, from the first on.
        summary: how it ended, or None while it is not complete.
        end: how it ended otherwise, as a sweep noted it, or None.
        message: what the sweep noted about that.
    """

    name: str
    folder: Path
    config: RunConfig
    environment: dict[str, Any]
    metrics: list[dict[str, Any]]
    summary: dict[str, Any] | None
    end: End | None = None
    message: str = ""

    @property
    def complete(self) -> bool:
        """Whether it has ended, and its best weights were measured on test."""
        return self.summary is not None

    @cached_property
    def best(self) -> dict[str, Any] | None:
        """:meth:`at_best` of the weights that count: those with the lower perplexity on valid."""
        return self.at_best(judged(self.config, self.metrics).best_weights)

    def at_best(self, weights: Weights) -> dict[str, Any] | None:
        """The line of metrics at the best epoch of the raw weights, or of their average, and more.

        ``best_valid`` is their perplexity on valid, which may be infinite. ``test`` and
        ``train_clean`` are theirs too, or None if they were not measured. None without an epoch,
        and for an average that there is not.
        """
        best = judged(self.config, self.metrics).bests.get(weights)
        if best is None and (weights == "averaged" or not self.metrics):
            return None
        line = self.metrics[best.epoch - 1 if best else 0]
        measured = self._measured(weights, line["epoch"])
        clean = line["train_clean"] if weights == "raw" else measured.get("train_clean")
        return line | {
            "weights": weights,
            "best_valid": best.nats if best else math.inf,
            "train_clean": clean,
            "test": _or_infinite(measured["test"]) if measured else None,
        }

    def _measured(self, weights: Weights, epoch: int) -> Mapping[str, Any]:
        """What the summary tells of these weights. That of noisin 0.1 tells of one kind only."""
        summary = self.summary or {}
        for found in (summary.get(weights), summary.get("best")):
            if found and (found["weights"], found["epoch"]) == (weights, epoch):
                return dict(found)
        return {}

    @cached_property
    def valid(self) -> list[float | None]:
        """Perplexity on valid by epoch, of the weights that count."""
        if self.best is None or self.best["weights"] == "raw":
            return [line["valid"] for line in self.metrics]
        return [line["valid_averaged"] or line["valid"] for line in self.metrics]

    @property
    def diverged(self) -> str | None:
        """Why it left the finite numbers, or None if it did not."""
        return self.message if self.end == "diverged" else None

    @property
    def unfinished(self) -> bool:
        """Whether the best epoch is the last one: it was still getting better."""
        return self.best is None or self.best["epoch"] == len(self.metrics)

    @property
    def not_scored(self) -> bool:
        """Whether it is complete, and its best weights were not scored on test."""
        return self.complete and self.best is not None and self.best["test"] is None

    @property
    def text(self) -> str | None:
        """The sha256 of the text that it has read, if its record tells."""
        known = self.environment.get("data")
        return None if known is None else str(known["sha256"])

    @cached_property
    def point(self) -> str:
        """Runs that share it are one point: see :func:`point`."""
        return point(self.config)


def comparable(config: RunConfig) -> RunConfig:
    """The settings that make a model and its training what they are.

    Without the seed, where and on how many threads it ran, and how much of the training text it was
    measured on. The spread of the noise is a gamma, however it was given.
    """
    plain = RunConfig()
    train = config.train.model_copy(update={"clean_tokens": plain.train.clean_tokens})
    update: dict[str, Any] = {"seed": plain.seed, "threads": None, "device": plain.device}
    update["train"] = train
    if (noise := config.noise) is not None:
        gamma = noise.known_gamma
        if gamma is not None:
            rounded = float(f"{gamma:.9g}")  # as it is where one digit or two were meant
            update["noise"] = noise.model_copy(update={"gamma": rounded, "std": None})
    return config.model_copy(update=update)


def point(config: RunConfig) -> str:
    """A hash of the comparable settings but for the limits."""
    return comparable(config).hash(limits=False)


def judged(config: RunConfig, metrics: list[dict[str, Any]]) -> Schedule:
    """What validation decided, decided again: the trainer's own rule tells the best epoch."""
    course = Schedule.start(config.train)
    for line in metrics:
        averaged = line["valid_averaged"]
        if course.averaging:
            averaged = _or_infinite(averaged)
        course.judge(config.train, _or_infinite(line["valid"]), averaged)
    return course


def _or_infinite(perplexity: float | None) -> float:
    """A perplexity as a record has it, where null stands for infinity."""
    return math.inf if perplexity is None else perplexity
