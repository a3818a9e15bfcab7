"""``summary.json``: how a run ended, and the scores of its best weights. Nothing here needs torch.

The schedule decides which epoch and which weights are best
(:mod:`noisin.training.schedule`); a summary contains their scores. The trainer writes a
:class:`RunSummary`; readers parse summaries of any version of noisin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from noisin.training.schedule import WEIGHTS, Weights
from noisin.training.scores import Recorded

_MEASURED = ("weights", "test", "checkpoint")  # not part of the line of metrics


@dataclass(frozen=True)
class BestResult:
    """The best epoch of the raw weights, or of their average.

    Attributes:
        weights: which weights.
        line: the line of ``metrics.jsonl`` of that epoch.
        test: their score on test.
        train_clean: their score on train with noise off; None if it was not measured. The value in
            ``line`` is always that of the raw weights.
        checkpoint: the number of the checkpoint that contains them.
    """

    weights: Weights
    line: Mapping[str, Any]
    test: Recorded
    train_clean: Recorded = None
    checkpoint: int | None = None

    @property
    def epoch(self) -> int:
        """The epoch, counted from 1."""
        epoch: int = self.line["epoch"]
        return epoch

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> Self:
        """Parse one of the entries ``raw``, ``averaged`` and ``best`` of ``summary.json``."""
        line = {name: value for name, value in content.items() if name not in _MEASURED}
        return cls(
            content["weights"],
            line,
            content["test"],
            content["train_clean"],
            content.get("checkpoint"),
        )

    def to_json(self) -> dict[str, Any]:
        """The line of metrics, with the scores of these weights."""
        return {
            **self.line,
            "weights": self.weights,
            "test": self.test,
            "checkpoint": self.checkpoint,
            "train_clean": self.train_clean,
        }


@dataclass(frozen=True)
class RunSummary:
    """How a run ended.

    Attributes:
        epochs, seconds: how long it was trained.
        bests: the best epoch of the raw weights, and of their average if there is one. Summaries of
            noisin 0.1 contain one of the two.
        best: the weights that count, as the schedule decided when the summary was written.
        ended: the limit that was reached.
        steps, tokens, parameters: how many there were.
        last: the last line of ``metrics.jsonl``.
        config: the hash of the settings.
    """

    epochs: int
    seconds: float
    bests: Mapping[Weights, BestResult]
    best: Weights = "raw"
    ended: str | None = None
    steps: int | None = None
    tokens: int | None = None
    parameters: int | None = None
    last: Mapping[str, Any] = field(default_factory=dict)
    config: str = ""

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> Self:
        """Parse the content of ``summary.json``, written by any version of noisin."""
        found = [content[name] for name in (*WEIGHTS, "best") if content.get(name)]
        bests = {entry["weights"]: BestResult.parse(entry) for entry in reversed(found)}
        known = {name: content.get(name) for name in ("ended", "steps", "tokens", "parameters")}
        return cls(
            epochs=content["epochs"],
            seconds=content["seconds"],
            bests={weights: bests[weights] for weights in WEIGHTS if weights in bests},
            best=content["best"]["weights"],
            last=content.get("last") or {},
            config=content.get("config", ""),
            **known,
        )

    def to_json(self) -> dict[str, Any]:
        """The content of ``summary.json``."""
        bests = {weights: best.to_json() for weights, best in self.bests.items()}
        return {
            "ended": self.ended,
            "epochs": self.epochs,
            "steps": self.steps,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "parameters": self.parameters,
            "best": bests[self.best],
            "raw": bests.get("raw"),
            "averaged": bests.get("averaged"),
            "last": dict(self.last),
            "config": self.config,
        }

    def measured(self, weights: Weights, epoch: int) -> BestResult | None:
        """The scores of these weights after this epoch, if they were measured."""
        found = self.bests.get(weights)
        return found if found is not None and found.epoch == epoch else None
