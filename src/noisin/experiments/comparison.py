"""Runs side by side: the same model from the same seed, but for what is compared.

Rows and pictures are made from the records alone, so they need no torch and can be remade later.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisin._util.files import write_atomically
from noisin.errors import InvalidValue
from noisin.training.config import RunConfig
from noisin.training.record import RunRecord
from noisin.training.schedule import WEIGHTS, Weights

if TYPE_CHECKING:
    from noisin.training.runtime.progress import Progress
    from noisin.training.runtime.workers import Workers


@dataclass(frozen=True)
class ComparisonRow:
    """The raw or the averaged weights of one run at their best epoch, the lowest on valid.

    Attributes:
        run: its name.
        train, valid, test: perplexities, with noise and dropout off; None if infinite, or if that
            of train was not measured.
        best_epoch, epochs: when that was, and how many there were.
        seconds: how long all of them took.
        weights: which they are.
        counts: whether these are the run's best weights: the lower perplexity on valid of the two.
    """

    run: str
    train: float | None
    valid: float | None
    test: float | None
    best_epoch: int
    epochs: int
    seconds: float
    weights: Weights = "raw"
    counts: bool = True

    @property
    def gap(self) -> float | None:
        """``valid - train``: how much better the model knows the text that it has seen."""
        if self.train is None or self.valid is None:
            return None
        return self.valid - self.train


def train_all(
    configs: Mapping[Path, RunConfig], progress: Progress, workers: Workers
) -> list[RunRecord]:
    """Train runs one after another, each in its folder. One that is complete is not repeated."""
    from noisin.training import Trainer

    return [Trainer(config, folder, progress, workers).fit() for folder, config in configs.items()]


def rows(records: Iterable[RunRecord]) -> list[ComparisonRow]:
    """The rows of complete runs: one for the raw weights, and one for their average if kept."""
    return [row for record in records for row in _rows(record)]


def best_row(record: RunRecord) -> ComparisonRow:
    """The row of a complete run that counts."""
    summary = _summary(record)
    return _row(record, summary, summary["best"])


def _rows(record: RunRecord) -> list[ComparisonRow]:
    summary = _summary(record)
    # The summaries of noisin 0.1 have the best weights only.
    bests = [summary[name] for name in WEIGHTS if summary.get(name)] or [summary["best"]]
    return [_row(record, summary, best) for best in bests]


def _summary(record: RunRecord) -> Mapping[str, Any]:
    summary = record.summary
    if summary is None:
        raise InvalidValue(
            f"{record.folder} is not complete. Run the same command again to continue it."
        )
    return summary


def _row(record: RunRecord, summary: Mapping[str, Any], best: Mapping[str, Any]) -> ComparisonRow:
    return ComparisonRow(
        run=record.folder.name,
        train=best["train_clean"],
        valid=best["valid_averaged" if best["weights"] == "averaged" else "valid"],
        test=best["test"],
        best_epoch=best["epoch"],
        epochs=summary["epochs"],
        seconds=summary["seconds"],
        weights=best["weights"],
        counts=best["weights"] == summary["best"]["weights"],
    )


def write_rows(table: Sequence[ComparisonRow], path: Path) -> None:
    """Keep the rows beside the records, as JSON."""
    content = [asdict(row) | {"gap": row.gap} for row in table]
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())
