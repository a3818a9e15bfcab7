"""Runs side by side: the same model from the same seed, except for what is compared.

Rows and pictures are made from the records alone, so they do not need torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisin._util.files import write_atomically
from noisin.errors import InvalidValue
from noisin.experiments.records import Run, read_run
from noisin.tasks.unit import PERPLEXITY, Unit
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
        train, valid, test: scores with noise and dropout off, in ``unit``; None if infinite or not
            measured.
        best_epoch, epochs: the best epoch, and the number of epochs.
        seconds: how long all of them took.
        weights: which weights.
        counts: whether these are the run's best weights: the lower score on valid of the two.
        unit: the unit of the scores.
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
    unit: Unit = PERPLEXITY

    @property
    def gap(self) -> float | None:
        """``valid - train``: how much better the model predicts the data that it was trained on."""
        if self.train is None or self.valid is None:
            return None
        return _finite(self.valid - self.train)


def train_all(
    configs: Mapping[Path, RunConfig], progress: Progress, workers: Workers
) -> list[RunRecord]:
    """Train runs one after another, each in its folder. A complete run is not repeated."""
    from noisin.training import run

    return [
        run(config, folder, progress=progress, workers=workers)
        for folder, config in configs.items()
    ]


def rows(records: Iterable[RunRecord]) -> list[ComparisonRow]:
    """The rows of complete runs: one for the raw weights, and one for their average if kept."""
    return [row for record in records for row in _rows(record)]


def best_row(record: RunRecord) -> ComparisonRow:
    """The row of a complete run with the weights that count."""
    return next(row for row in _rows(record) if row.counts)


def _rows(record: RunRecord) -> list[ComparisonRow]:
    if record.summary is None:
        raise InvalidValue(
            f"{record.folder} is not complete. Run the same command again to continue it."
        )
    run = read_run(record.folder)
    bests = [run.at_best(weights) for weights in WEIGHTS]
    return [_row(run, best) for best in bests if best is not None]


def _row(run: Run, best: Mapping[str, Any]) -> ComparisonRow:
    assert run.summary is not None
    return ComparisonRow(
        run=run.name,
        train=_finite(best["train_clean"]),
        valid=_finite(best["best_valid"]),
        test=_finite(best["test"]),
        best_epoch=best["epoch"],
        epochs=run.summary.epochs,
        seconds=run.summary.seconds,
        weights=best["weights"],
        counts=best["weights"] == run.decisions.best_weights,
        unit=run.unit,
    )


def _finite(score: float | None) -> float | None:
    return score if score is not None and math.isfinite(score) else None


def write_rows(table: Sequence[ComparisonRow], path: Path) -> None:
    """Write the rows next to the records, as JSON."""
    content = [asdict(row) | {"gap": row.gap} for row in table]
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())
