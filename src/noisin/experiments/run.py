"""What the record of a run says, and by which settings runs compare."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from noisin import parameters
from noisin.training.config import RunConfig
from noisin.training.course import Course

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
        """The line of metrics at the epoch of the lowest validation perplexity, and more.

        ``weights`` are those that counted there, raw or averaged, ``best_valid`` is their
        perplexity on valid, and ``test`` theirs on test, or None if the run is not complete. A
        perplexity that is infinite is None too. Without an epoch there is no best one.
        """
        if not self.metrics:
            return None
        course = judged(self.config, self.metrics)
        line = self.metrics[max(course.best_epoch, 1) - 1]
        return line | {
            "weights": course.best_weights,
            "best_valid": course.best if math.isfinite(course.best) else None,
            "test": None if self.summary is None else self.summary["best"]["test"],
        }

    @cached_property
    def valid(self) -> list[float | None]:
        """Perplexity on valid by epoch, of the weights that counted: the raw, or their average."""
        history = judged(self.config, self.metrics).history
        return [value if math.isfinite(value) else None for value in history]

    @property
    def diverged(self) -> str | None:
        """Why it left the finite numbers, or None if it did not."""
        return self.message if self.end == "diverged" else None

    @property
    def unfinished(self) -> bool:
        """Whether the best epoch is the last one: it was still getting better."""
        return self.best is None or self.best["epoch"] == len(self.metrics)

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
        exact = noise.gamma if noise.std is None else parameters.gamma(noise.law, noise.std)
        rounded = float(f"{exact:.9g}")  # as it is where one digit or two were meant
        update["noise"] = noise.model_copy(update={"gamma": rounded, "std": None})
    return config.model_copy(update=update)


def point(config: RunConfig) -> str:
    """A hash of the comparable settings but for the limits."""
    return comparable(config).hash(limits=False)


def judged(config: RunConfig, metrics: list[dict[str, Any]]) -> Course:
    """What validation decided, decided again: the trainer's own rule tells the best epoch."""
    course = Course.start(config.train)
    for line in metrics:
        raw, averaged = line["valid"], line["valid_averaged"]
        if averaged is None and course.averaging:
            averaged = math.inf
        course.judge(config.train, math.inf if raw is None else raw, averaged)
    return course
