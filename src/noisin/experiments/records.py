"""The records of runs as experiments read them, and the settings by which runs compare."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from noisin.errors import InvalidValue
from noisin.tasks.unit import Unit
from noisin.training import evaluations, schemas, scores
from noisin.training.config import RunConfig
from noisin.training.reading import read_object
from noisin.training.record import RunRecord
from noisin.training.schedule import Schedule, Weights
from noisin.training.summary import BestResult, RunSummary

End = Literal["diverged", "pruned", "failed"]
SCORES = ("train", "train_clean", "valid", "valid_averaged")
TWO_TAILED = "two_tailed"  # null is not an infinite score: there is no average at times
NUMBERS = ("lr", "noise_std", "seconds", "tokens_per_second")


@dataclass(frozen=True)
class Run:
    """The record of a run.

    Attributes:
        name: its folder, as seen from the folder that was searched.
        folder: its folder.
        config: its settings.
        environment: what it ran on and with.
        unit: the unit of its scores.
        lines: the lines of ``metrics.jsonl``, one for each epoch, as they were written.
        summary: how it ended, or None while it is not complete.
        end: how it ended otherwise, as a sweep noted it, or None.
        message: what the sweep noted about that.
    """

    name: str
    folder: Path
    config: RunConfig
    environment: dict[str, Any]
    unit: Unit
    lines: list[dict[str, Any]]
    summary: RunSummary | None
    end: End | None = None
    message: str = ""

    @property
    def complete(self) -> bool:
        """Whether it has ended, and its best weights were measured on test."""
        return self.summary is not None

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl`` with scores in the run's unit, None where not measured."""
        return [self._in_unit(line) for line in self.lines]

    def _in_unit(self, line: Mapping[str, Any]) -> dict[str, Any]:
        numbers = {name: line.get(name) for name in NUMBERS}
        return {
            **line,
            **{name: scores.in_unit(line[name], self.unit) for name in SCORES},
            **{name: None if value is None else float(value) for name, value in numbers.items()},
        }

    @cached_property
    def decisions(self) -> Schedule:
        """Which epoch and which weights are best: see :func:`judged`."""
        return judged(self.config, self.lines)

    @cached_property
    def best(self) -> dict[str, Any] | None:
        """:meth:`at_best` of the weights that count: those with the lower score on valid."""
        return self.at_best(self.decisions.best_weights)

    def at_best(self, weights: Weights) -> dict[str, Any] | None:
        """The line of metrics at the best epoch of the raw weights, or of their average, and more.

        ``best_valid`` is their score on valid, which may be infinite. ``test`` and ``train_clean``
        are theirs too, or None if they were not measured. None without an epoch, and for an average
        that does not exist.
        """
        best = self.decisions.bests.get(weights)
        if best is None and (weights == "averaged" or not self.metrics):
            return None
        line = self.metrics[best.epoch - 1 if best else 0]
        measured = self._measured(weights, line["epoch"])
        valid = line["valid" if weights == "raw" else "valid_averaged"]
        clean = line["train_clean"]
        if weights == "averaged":
            clean = scores.in_unit(measured.train_clean, self.unit) if measured else None
        return line | {
            "weights": weights,
            "best_valid": valid if best and valid is not None else math.inf,
            "train_clean": clean,
            "test": _test(measured, self.unit) if measured else None,
        }

    def _measured(self, weights: Weights, epoch: int) -> BestResult | None:
        return self.summary.measured(weights, epoch) if self.summary else None

    @cached_property
    def valid(self) -> list[float | None]:
        """The score on valid by epoch, of the weights that count."""
        if self.best is None or self.best["weights"] == "raw":
            return [line["valid"] for line in self.metrics]
        pairs = [(line["valid_averaged"], line["valid"]) for line in self.metrics]
        return [raw if averaged is None else averaged for averaged, raw in pairs]

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """What ``noisin evaluate`` measured, the oldest first: see ``training.evaluations``."""
        return evaluations.read(self.folder)

    def evaluations_of_best(self, split: str) -> list[dict[str, Any]]:
        """Those of a split by the best weights, the oldest first."""
        best = self.best
        return [
            line
            for line in self.evaluations
            if best is not None
            and (line["split"], line["checkpoint"]) == (split, "best")
            and (line["weights"], line["epoch"]) == (best["weights"], best["epoch"])
        ]

    def evaluated(self, split: str = "test") -> dict[str, float | None]:
        """The newest score of the best weights by what was used: ``static``, ``cache``, ..."""
        return {
            evaluations.kind_of(line): scores.in_unit(line, self.unit)
            for line in self.evaluations_of_best(split)
        }

    @property
    def diverged(self) -> str | None:
        """Why its loss became non-finite, or None if it did not."""
        return self.message if self.end == "diverged" else None

    @property
    def unfinished(self) -> bool:
        """Whether the best epoch is the last one: it was still getting better."""
        return self.best is None or self.best["epoch"] == len(self.metrics)

    @property
    def not_scored(self) -> bool:
        """Whether it is complete, and its summary has no scores of its best weights."""
        best = self.best
        return (
            self.complete
            and best is not None
            and self._measured(best["weights"], best["epoch"]) is None
        )

    @property
    def text(self) -> str | None:
        """The sha256 of the data that it was trained on, if its record contains it."""
        known = self.environment.get("data")
        return None if known is None else str(known["sha256"])

    @cached_property
    def point(self) -> str:
        """Runs that share it are one point: see :func:`point`."""
        return point(self.config)


def _test(measured: BestResult, unit: Unit) -> float | None:
    """The score on test. A null of noisin 0.1 is an infinite one, a later one was not measured."""
    perplexities = not isinstance(measured.line["valid"], Mapping)
    if measured.test is None:
        return math.inf if perplexities else None
    return scores.in_unit(measured.test, unit)


def read_run(folder: Path, name: str | None = None) -> Run:
    """Read the record of a run and check that its files agree."""
    record = RunRecord(folder)
    content = record.summary  # first, because it is written last
    summary = None if content is None else RunSummary.parse(content)
    config, lines, unit = record.config, record.metrics, record.unit
    _check_unit(folder, unit, lines)
    if summary is not None:
        for best in summary.bests.values():
            _check_epoch(folder, best, lines)
    end = (None, "") if summary is not None else _end(folder, config)
    shown = folder.name if name is None else name
    return Run(shown, folder, config, record.environment, unit, lines, summary, *end)


def _check_unit(folder: Path, unit: Unit, lines: Sequence[Mapping[str, Any]]) -> None:
    """Only perplexities were ever written as plain numbers."""
    for line in lines:
        plain = [name for name in SCORES if isinstance(line[name], int | float)]
        if plain and unit.name != "perplexity":
            raise InvalidValue(
                f"{folder / 'metrics.jsonl'} is damaged: line {line['epoch']}: {plain[0]} is a "
                f"perplexity, and environment.json has the unit {unit}. Put both files back."
            )


def _check_epoch(folder: Path, best: BestResult, lines: Sequence[Mapping[str, Any]]) -> None:
    """Check that the best epoch in a summary is a line of the metrics."""
    found = [line for line in lines if line["epoch"] == best.epoch]
    names = ("valid", "valid_averaged")
    if not found or any(found[0][name] != best.line[name] for name in names):
        raise InvalidValue(
            f"{folder / 'summary.json'} is damaged: its best epoch, {best.epoch}, is not one of "
            f"the {len(lines)} in metrics.jsonl. Put both files back, or run it again."
        )


def _end(folder: Path, config: RunConfig) -> tuple[End | None, str]:
    """What a sweep noted in ``diverged.json`` and the like, unless the settings were others."""
    for end in get_args(End):
        path = folder / f"{end}.json"
        try:
            note = read_object(path, schemas.EndNote)
        except InvalidValue as error:
            raise InvalidValue(f"{error} Or delete {path.name} to continue the run.") from None
        if note is not None and note["config"] == config.hash():
            return end, str(note["message"])
    return None, ""


def comparable(config: RunConfig) -> RunConfig:
    """The settings that define a model and its training.

    The seed, the device, the number of threads and the amount of training text to measure are set
    to their defaults. The spread of the noise is a gamma, however it was given.
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
    """A hash of the comparable settings without the limits."""
    return comparable(config).hash(limits=False)


def judged(config: RunConfig, lines: Sequence[Mapping[str, Any]]) -> Schedule:
    """What validation decided: the trainer's own rule, applied to the lines of metrics again."""
    course = Schedule.start(config.train)
    for line in lines:
        averaged = line["valid_averaged"]
        known = averaged is not None or (course.averaging and config.train.averaging != TWO_TAILED)
        course.judge(
            config.train, scores.nats(line["valid"]), scores.nats(averaged) if known else None
        )
    return course
