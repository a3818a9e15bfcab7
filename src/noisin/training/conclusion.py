"""The end of a run: score its best weights on the test data and make the summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from noisin.tasks import Score
from noisin.tasks.base import Split
from noisin.training import scores
from noisin.training.checkpoint import Checkpoint, Checkpoints
from noisin.training.schedule import Weights
from noisin.training.state import TrainState, load_weights
from noisin.training.summary import BestResult, RunSummary

Measure = Callable[
    [Split], Score | None
]  # the score of the current weights; None without the split


def summarize(
    state: TrainState,
    checkpoints: Checkpoints,
    newest: Checkpoint,
    lines: Sequence[Mapping[str, Any]],
    measure: Measure,
    **facts: Any,
) -> RunSummary:
    """The summary of a run. Afterwards the model has the best weights that were scored last.

    Args:
        state: the run at its end.
        checkpoints, newest: where its best weights are.
        lines: its metrics, one per epoch.
        measure: scores the current weights.
        facts: the remaining fields of the summary: how it ended, its time, the config's hash.
    """
    bests = {}
    for weights, best in state.schedule.bests.items():
        checkpoint = checkpoints.best(newest, weights)
        saved = checkpoint.weights if weights == "raw" else checkpoint.average
        assert saved is not None
        load_weights(state.weights(), saved)
        bests[weights] = _best_result(weights, lines[best.epoch - 1], checkpoint, measure)
    return RunSummary(
        epochs=state.epoch,
        steps=state.step,
        tokens=state.tokens,
        parameters=sum(p.numel() for p in state.parameters),
        bests=bests,
        best=state.schedule.best_weights,
        last=lines[-1],
        **facts,
    )


def _best_result(
    weights: Weights, line: Mapping[str, Any], checkpoint: Checkpoint, measure: Measure
) -> BestResult:
    """Measure the scores of the best weights that were not measured after their epoch."""
    test, clean = recorded(measure("test")), line["train_clean"]
    if weights == "averaged":  # the line has the score of the raw weights
        clean = recorded(measure("train_clean"))
    return BestResult(weights, line, test, clean, checkpoint.manifest.number)


def recorded(score: Score | None) -> dict[str, Any] | None:
    """A score as a record contains it; None stays None."""
    return None if score is None else scores.to_json(score)
