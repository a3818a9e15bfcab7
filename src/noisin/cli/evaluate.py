"""``noisin evaluate``: the perplexity of a trained model."""

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
    from noisin.data.cache import Ids
    from noisin.training.load import Restored
    from noisin.training.predictors import Score

MOST_SAMPLES = 10_000
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
    """Measure the perplexity of a trained model on its text.

    Parameters
    ----------
    run
        The folder of the run.
    split
        The text to measure on.
    method
        exact: the model with its noise off. The others mix samples of the noise: the marginal
        likelihood of windows of 35 words, or the ensemble that averages probabilities
        (arithmetic) or their logarithms (geometric).
    samples
        How many samples of the noise to mix; 10 unless given.
    batch_size
        Columns that the text is cut into; 1 scores every word but the first, with all its history.
    temperature
        Divides the natural parameters.
    weights
        The raw ones or their average; unless given, those that are better on valid.
    checkpoint
        The best epoch of these weights, or the newest checkpoint.
    seed
        Of the samples.
    folder
        Where the files of ptb or wikitext-2 lie, or the text of your own, if it was moved.
    json
        Print JSON instead of a sentence.
    """
    if method == "exact" and samples is not None:
        raise InvalidValue("--samples is for the methods that draw noise; exact draws none.")
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
    options: dict[str, Any] = {"batch_size": batch_size, "temperature": temperature}
    if method != "exact":
        options["K"] = 10 if samples is None else samples
    score = _score(restored, _text(record, folder, split), method, seed, options)
    told = {
        "run": str(run),
        "checkpoint": checkpoint,
        "epoch": restored.epoch,
        "weights": restored.weights,
        "split": split,
        "method": method,
        **options,
        **asdict(score),
        "perplexity": score.perplexity,
    }
    tell(json_format.dumps(finite(told), indent=2) if json else _sentence(told))


def _text(record: RunRecord, folder: Path | None, split: str) -> Ids:
    """A split of the text that the run was trained on, and of no other."""
    from noisin import data

    config = record.config.data
    if folder is None:
        corpus = data.load(config.name, config.folder)
    elif config.name in data.NAMES:
        corpus = data.load(config.name, folder)
    else:
        corpus = data.load(folder)  # where a text of one's own is now
    if record.environment.get("data", {}).get("sha256") != corpus.sha256:
        raise InvalidData(
            f"{corpus.source}: is not the text that {record.folder} was trained on: the sha256 is "
            f"{corpus.sha256}. Name the place of the right one with --data."
        )
    ids: Ids = getattr(corpus, split)
    return ids


def _score(restored: Restored, ids: Ids, method: Method, seed: int, options: Any) -> Score:
    import torch

    from noisin.training import predictors

    torch.manual_seed(seed)
    if method == "exact":
        return predictors.perplexity(restored.model, ids, **options)
    score: Score = getattr(predictors, method)(restored.model, ids, **options)
    return score


def _sentence(told: dict[str, Any]) -> str:
    error = ""
    if told["stderr"] is not None:
        error = f" ± {told['perplexity'] * told['stderr']:.2g}"
    mixed = f", {told['K']} samples" if "K" in told else ""
    return (
        f"{told['split']} perplexity {told['perplexity']:.2f}{error}  "
        f"({told['method']}{mixed}; {told['weights']} weights after epoch {told['epoch']}; "
        f"batch {told['batch_size']}, {told['tokens']:,} words)"
    )
