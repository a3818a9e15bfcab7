"""``noisin evaluate``: the score of a trained model."""

from __future__ import annotations

import json as json_format
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from noisin._util.settings import nest
from noisin.cli.arguments import Number, Switch, WholeNumber
from noisin.cli.consoles import tell, tell_sentences
from noisin.cli.progress import Display
from noisin.cli.scoring import Session, described, print_trials, sentence
from noisin.errors import InvalidValue, Unavailable
from noisin.training import evaluations
from noisin.training.record import RunRecord, finite
from noisin.training.tuning import best

if TYPE_CHECKING:
    from noisin.training.load import Restored

BUDGET, TOKENS = 20, 10_000
SAMPLES, OF_METHOD = 10, {"elbo": 1, "marginal": 200}  # by default; marginal needs many
MOST_SAMPLES = 10_000
Method = Literal[
    "exact", "marginal", "arithmetic", "geometric", "monte-carlo", "elbo", "iwae", "fivo"
]
BOUNDS = ("elbo", "iwae", "fivo")
Normalisation = Literal["krause", "mos", "lamb", "sgd"]

_CACHE = Group("Continuous cache", sort_key=1)
_DYNAMIC = Group("Dynamic evaluation", sort_key=2)
_TUNE = Group("Tuning", sort_key=3)


def evaluate(
    run: Path,
    /,
    *,
    split: Literal["train", "valid", "test"] = "test",
    method: Method | None = None,
    samples: WholeNumber | None = None,
    masks: Literal["window", "pass"] | None = None,
    power: Number | None = None,
    batch_size: WholeNumber | None = None,
    temperature: Number | None = None,
    weights: Literal["raw", "averaged"] | None = None,
    checkpoint: Literal["best", "last"] = "best",
    unknown: Number | None = None,
    calibration: Switch = False,
    seed: WholeNumber = 1111,
    folder: Annotated[Path | None, Parameter(name="--data")] = None,
    json: Switch = False,
    cache: Annotated[Switch, Parameter(group=_CACHE)] = False,
    window: Annotated[WholeNumber | None, Parameter(name="--cache.window", group=_CACHE)] = None,
    theta: Annotated[Number | None, Parameter(name="--cache.theta", group=_CACHE)] = None,
    lambda_: Annotated[Number | None, Parameter(name="--cache.lambda", group=_CACHE)] = None,
    dynamic: Annotated[Switch, Parameter(group=_DYNAMIC)] = False,
    lr: Annotated[Number | None, Parameter(name="--dynamic.lr", group=_DYNAMIC)] = None,
    decay: Annotated[Number | None, Parameter(name="--dynamic.decay", group=_DYNAMIC)] = None,
    epsilon: Annotated[Number | None, Parameter(name="--dynamic.epsilon", group=_DYNAMIC)] = None,
    segment: Annotated[
        WholeNumber | None, Parameter(name="--dynamic.segment", group=_DYNAMIC)
    ] = None,
    normalisation: Annotated[
        Normalisation | None, Parameter(name="--dynamic.normalisation", group=_DYNAMIC)
    ] = None,
    tune: Annotated[Switch, Parameter(group=_TUNE)] = False,
    budget: Annotated[WholeNumber | None, Parameter(name="--tune.budget", group=_TUNE)] = None,
    tokens: Annotated[WholeNumber | None, Parameter(name="--tune.tokens", group=_TUNE)] = None,
) -> None:
    """Score a trained model on its data, and add the score to evaluations.jsonl in its folder.

    Parameters
    ----------
    run
        The folder of the run.
    split
        The split to score.
    method
        exact: the model with its noise off. The others mix samples of the noise: the marginal
        likelihood of windows of 35 words, or the ensemble that averages probabilities
        (arithmetic) or their logarithms (geometric); monte-carlo: with dropout on as well. Of a
        stochastic RNN: its evidence lower bound, or that of importance weights or of a particle
        filter (iwae, fivo). By default exact, and elbo for a stochastic RNN.
    samples
        The number of samples to mix; by default 10, 200 for marginal, whose standard error needs
        many, and 1 for elbo.
    masks
        Of monte-carlo: new masks for every window, or one set for a whole pass; by default window.
    power
        The power mean of monte-carlo: 1 averages probabilities, 0 their logarithms; by default 1.
    batch_size
        Columns of the text; 1 scores every word but the first, with its full history. By default
        10, and 1 with a cache or dynamic evaluation.
    temperature
        Divides the natural parameters; by default 1.
    weights
        Raw or averaged weights; by default those that are better on valid.
    checkpoint
        The best epoch of these weights, or the newest checkpoint.
    unknown
        Replace this share of the input words by the unknown word, at random, to see how the model
        copes; the targets are as they were.
    calibration
        Measure how often the likeliest word is right, against how likely it was said to be.
    seed
        The seed of the noise samples, and of the words that are replaced.
    folder
        The folder of ptb or wikitext-2, or your own text, if it was moved.
    json
        Print JSON instead of a sentence.
    cache
        Mix the words that followed similar hidden states into the prediction.
    window
        How many words the cache holds; by default 500.
    theta
        How much the similarity counts; by default 0.6.
    lambda_
        The share of the cache, in [0, 1); by default 0.1.
    dynamic
        Adapt the weights to the text while it is scored.
    lr
        The step along the gradient; by default 5e-5 for segments of 5, converted.
    decay
        The step back to the trained weights, in [0, 1); by default 0.002, likewise.
    epsilon
        Added to the root mean square of the gradients; by default 2e-5, converted.
    segment
        Words between two steps; by default 5.
    normalisation
        Of the gradients, as in three public implementations, or none (sgd); by default krause.
    tune
        Search for the settings that are not given, on valid, and score the split once with them.
    budget
        How many settings to try; by default 20.
    tokens
        How many words of valid to try them on; by default 10,000.
    """
    began = time.monotonic()
    parts: dict[str, dict[str, Any]] = {
        "cache": {"window": window, "theta": theta, "lambda": lambda_},
        "dynamic": {
            "lr": lr,
            "decay": decay,
            "epsilon": epsilon,
            "segment": segment,
            "normalisation": normalisation,
        },
        "tune": {"budget": budget, "tokens": tokens},
    }
    on = {"cache": cache, "dynamic": dynamic, "tune": tune}
    # One of its settings turns a part on.
    on = {name: switch or _is_given(parts[name]) for name, switch in on.items()}
    mixture = {"samples": samples, "masks": masks, "power": power}
    if batch_size is not None and batch_size < 1:
        raise InvalidValue(f"--batch-size must be 1 or more, got {batch_size}.")
    _check(method, mixture, on, parts["tune"], seed)
    from noisin.training.load import restore

    record, note = RunRecord(run), Display().note
    restored = restore(record, checkpoint, weights, note)
    evaluations.read(run)  # a damaged file is refused before the work and not after it
    method = method or ("exact" if restored.config.model.latent is None else "elbo")
    _check_run(restored, run, method, on)
    _check_words(restored, run, method, on, unknown, calibration)
    given = {"temperature": temperature, **_of_method(method, mixture)}
    if on["cache"]:
        given |= {f"cache.{name}": value for name, value in parts["cache"].items()}
    if on["dynamic"]:
        usual = {"segment": 5, "normalisation": "krause"}
        given |= {
            f"dynamic.{n}": usual.get(n) if v is None else v for n, v in parts["dynamic"].items()
        }
    if batch_size is None:
        batch_size = 1 if on["cache"] or on["dynamic"] else 10
    session = Session(
        *(record, restored, folder, batch_size, method, seed, given, note),
        unknown=unknown or 0.0,
        calibration=calibration,
    )
    session.check(split)
    settings, tuned = session.settings, {}
    if on["tune"]:
        trials, count = session.tuned(budget or BUDGET, tokens or TOKENS)
        settings = best(trials).settings
        tuned = {"tuned": described(trials, count)}
        if not json:
            print_trials(trials, session.unit)
    (score, conventions), unit = session.score(split, settings), session.unit
    found = {
        "checkpoint": checkpoint,
        "epoch": restored.epoch,
        "weights": restored.weights,
        "split": split,
        "method": method,
        "batch_size": batch_size,
        **({"unknown": unknown} if unknown else {}),
        **nest(settings),
        **tuned,
        **asdict(score),
        "unit": unit.name,
        "per": unit.per,
        unit.name: unit.value(score.nats),
        **conventions,
    }
    try:
        evaluations.add(run, {**found, "seed": seed, "seconds": time.monotonic() - began})
    except Unavailable as error:
        note(f"The evaluation is not recorded: {error}")
    told = {"run": str(run), **found}
    if json:
        tell(json_format.dumps(finite(told), indent=2))
    else:
        tell_sentences(sentence(told, unit))


def _is_given(values: Mapping[str, Any]) -> bool:
    return any(value is not None for value in values.values())


def _check(
    method: Method | None,
    mixture: Mapping[str, Any],
    on: Mapping[str, bool],
    tune: Mapping[str, Any],
    seed: int,
) -> None:
    """Raise for options that do not belong together, before anything is loaded."""
    samples = mixture["samples"]
    if method in (None, "exact") and samples is not None:
        raise InvalidValue(
            "--samples is only for methods that draw noise or latent variables, and exact does "
            "not. Name one with --method."
        )
    if samples is not None and not 1 <= samples <= MOST_SAMPLES:
        raise InvalidValue(f"--samples must lie in 1 to {MOST_SAMPLES}, got {samples}.")
    if method != "monte-carlo" and (mixture["masks"] or mixture["power"] is not None):
        raise InvalidValue("--masks and --power are for --method monte-carlo.")
    if method not in (None, "exact") and (on["cache"] or on["dynamic"]):
        raise InvalidValue(
            f"--cache and --dynamic need one hidden state, and --method {method} mixes samples "
            f"that have one each. Use --method exact."
        )
    for name, value in tune.items():
        if value is not None and value < 1:
            raise InvalidValue(f"--tune.{name} must be 1 or more, got {value}.")
    if not 0 <= seed < 2**63:
        raise InvalidValue(f"--seed must be 0 or more and below 2**63, got {seed}.")


def _check_run(restored: Restored, run: Path, method: Method, on: Mapping[str, bool]) -> None:
    """Raise for options that the model does not allow."""
    config = restored.config
    if (config.model.latent is not None) != (method in BOUNDS):
        what = "one of" if config.model.latent else "none of"
        raise InvalidValue(
            f"{run}: --method must be {what} {', '.join(BOUNDS)}, which are the bounds of a "
            f"stochastic RNN, got {method}."
        )
    if method in BOUNDS:
        if any(on.values()):
            raise InvalidValue(f"{run}: --cache, --dynamic and --tune need an exact likelihood.")
        return
    noisy = config.noise is not None and config.train.objective != "penalty"
    if method not in ("exact", "monte-carlo") and not noisy:
        raise InvalidValue(
            f"{run}: was trained without noise, so --method must be exact, or monte-carlo for "
            f"samples of its dropout."
        )
    if on["cache"] and restored.vocab is None:
        raise InvalidValue(f"{run}: does not predict words, so it cannot have a cache of them.")


def _check_words(
    restored: Restored,
    run: Path,
    method: Method,
    on: Mapping[str, bool],
    unknown: float | None,
    calibration: bool,
) -> None:
    """Raise for what only a model of words can be asked."""
    from noisin.data.vocab import UNK

    if unknown is not None:
        if not 0 <= unknown < 1:
            raise InvalidValue(f"--unknown is a share and must lie in [0, 1), got {unknown:g}.")
        if restored.vocab is None or UNK not in restored.vocab:
            raise InvalidValue(f"{run}: has no unknown word {UNK}, so --unknown cannot be used.")
    if calibration:
        if restored.vocab is None:
            raise InvalidValue(f"{run}: does not predict words, so --calibration cannot be used.")
        if method != "exact" or on["cache"] or on["dynamic"]:
            raise InvalidValue(
                "--calibration is for --method exact without a cache or dynamic evaluation."
            )


def _of_method(method: Method, mixture: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a method that mixes samples."""
    if method == "exact":
        return {}
    usual = OF_METHOD.get(method, SAMPLES)
    K = {"K": usual if mixture["samples"] is None else mixture["samples"]}
    if method != "monte-carlo":
        return K
    return {**K, "masks": mixture["masks"] or "window", "power": mixture["power"]}
