"""``noisin evaluate``: the score of a trained model."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from noisin.cli.arguments import Number, Switch, WholeNumber
from noisin.cli.consoles import tell
from noisin.cli.progress import Display
from noisin.errors import InvalidData, InvalidValue
from noisin.training.record import RunRecord, finite

if TYPE_CHECKING:
    from noisin.tasks import Score, Task, Unit
    from noisin.tasks.base import Split
    from noisin.training.load import Restored

MOST_SAMPLES = 10_000
ALL = 10**15  # tokens, more than any text has
Method = Literal["exact", "marginal", "arithmetic", "geometric"]


def evaluate(
    run: Path,
    /,
    *,
    split: Literal["train", "valid", "test"] = "test",
    method: Method = "exact",
    samples: WholeNumber | None = None,
    batch_size: WholeNumber = 10,
    temperature: Number = 1.0,
    weights: Literal["raw", "averaged"] | None = None,
    checkpoint: Literal["best", "last"] = "best",
    seed: WholeNumber = 1111,
    folder: Annotated[Path | None, Parameter(name="--data")] = None,
    json: Switch = False,
) -> None:
    """Score a trained model on its data.

    Parameters
    ----------
    run
        The folder of the run.
    split
        The split to score.
    method
        exact: the model with its noise off. The others mix samples of the noise: the marginal
        likelihood of windows of 35 words, or the ensemble that averages probabilities
        (arithmetic) or their logarithms (geometric).
    samples
        The number of noise samples to mix; by default 10.
    batch_size
        Columns of the text; 1 scores every word but the first, with its full history.
    temperature
        Divides the natural parameters.
    weights
        Raw or averaged weights; by default those that are better on valid.
    checkpoint
        The best epoch of these weights, or the newest checkpoint.
    seed
        The seed of the noise samples.
    folder
        The folder of ptb or wikitext-2, or your own text, if it was moved.
    json
        Print JSON instead of a sentence.
    """
    if method == "exact" and samples is not None:
        raise InvalidValue("--samples is only for methods that draw noise; exact does not.")
    if samples is not None and not 1 <= samples <= MOST_SAMPLES:
        raise InvalidValue(f"--samples must lie in 1 to {MOST_SAMPLES}, got {samples}.")
    if not 0 <= seed < 2**63:
        raise InvalidValue(f"--seed must be 0 or more and below 2**63, got {seed}.")
    from noisin.training.load import restore

    record = RunRecord(run)
    restored = restore(record, checkpoint, weights, Display().note)
    config = restored.config
    if method != "exact" and (config.noise is None or config.train.objective == "penalty"):
        raise InvalidValue(f"{run}: was trained without noise, so --method must be exact.")
    options: dict[str, Any] = {"temperature": temperature}
    if method != "exact":
        options["K"] = 10 if samples is None else samples
    task = _task(record, folder, batch_size)
    score = _score(restored, task, split, method, seed, options)
    found = {
        "run": str(run),
        "checkpoint": checkpoint,
        "epoch": restored.epoch,
        "weights": restored.weights,
        "split": split,
        "method": method,
        "batch_size": batch_size,
        **options,
        **asdict(score),
        "unit": task.unit.name,
        "per": task.unit.per,
        task.unit.name: task.unit.value(score.nats),
    }
    tell(json_format.dumps(finite(found), indent=2) if json else _sentence(found, task.unit))


def _task(record: RunRecord, folder: Path | None, batch_size: int) -> Task:
    """The task of the run, with its data in ``batch_size`` columns; raises for other data."""
    from noisin import data
    from noisin.data import music
    from noisin.tasks.base import facts_of
    from noisin.training.build import build_task

    config = record.config
    place: dict[str, Any] = {}
    if folder is not None:
        public = config.data.name in (*data.NAMES, *music.FILES)
        place = {"folder": str(folder)} if public else {"name": str(folder), "folder": None}
    limits = {"eval_batch_size": batch_size, "clean_tokens": ALL}
    here = {
        "data": config.data.model_copy(update=place),
        "train": config.train.model_copy(update=limits),
    }
    task = build_task(config.model_copy(update=here))
    sha256 = facts_of(task)["data"]["sha256"]
    if record.environment.get("data", {}).get("sha256") != sha256:
        raise InvalidData(
            f"{folder or config.data.name}: is not the data that {record.folder} was trained on: "
            f"the sha256 is {sha256}. Pass the path of the right data with --data."
        )
    return task


def _score(
    restored: Restored, task: Task, split: Split, method: Method, seed: int, options: Any
) -> Score:
    import torch

    from noisin.training import predictors

    torch.manual_seed(seed)
    kind = {"exact": "clean"}.get(method, method).capitalize()
    predictor = getattr(predictors, kind)(restored.model, **options)
    return predictors.evaluate(
        predictor, task.batches("train_clean" if split == "train" else split)
    )


def _sentence(found: dict[str, Any], unit: Unit) -> str:
    error = ""
    if found["stderr"] is not None:
        error = f" ± {unit.error(found['nats'], found['stderr']):.2g}"
    mixed = f", {found['K']} samples" if "K" in found else ""
    return (
        f"{found['split']} {unit.name} {found[unit.name]:.2f}{error}  "
        f"({found['method']}{mixed}; {found['weights']} weights after epoch {found['epoch']}; "
        f"batch {found['batch_size']}, {found['count']:,} {unit.per}s)"
    )
