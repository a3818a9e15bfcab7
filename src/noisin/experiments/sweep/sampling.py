"""How a search chooses the values of its points, and what is recorded about it."""

from __future__ import annotations

import warnings
from typing import Any

import optuna
from optuna.samplers import BaseSampler, RandomSampler, TPESampler

from noisin.experiments.sweep.space import Distribution, Search, is_whole

# Explicit, because the defaults differ between versions of Optuna. The lie about points that other
# workers are trying makes the sampler avoid them.
TPE: dict[str, Any] = {
    "n_startup_trials": 10,
    "n_ei_candidates": 24,
    "multivariate": True,
    "group": False,
    "constant_liar": True,
}


def settings(search: Search | None) -> dict[str, Any]:
    """What the record of a sweep says about the sampler and the version of Optuna.

    >>> settings(None) == {"optuna": optuna.__version__}
    True
    """
    known: dict[str, Any] = {"optuna": optuna.__version__}
    if search is None:
        return known
    own = TPE if search.sampler == "tpe" else {}
    return known | {"sampler": search.sampler, "seed": search.seed, **own}


def sampler(search: Search | None, number: int) -> BaseSampler:
    """The sampler of one trial, with the trial's own seed, whichever process draws."""
    if search is None:
        return RandomSampler(seed=0)
    seed = (search.seed * 1_000_003 + number) % 2**32
    if search.sampler == "random":
        return RandomSampler(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what Optuna calls experimental
        return TPESampler(seed=seed, **TPE)


def suggest(trial: optuna.Trial, search: Search) -> dict[str, Any]:
    """The values that the sampler chooses for a trial; a retried trial keeps its values."""
    return {name: _suggest(trial, name, given) for name, given in search.space.items()}


def _suggest(trial: optuna.Trial, name: str, given: Distribution) -> Any:
    if given.choices is not None:
        return trial.suggest_categorical(name, given.choices)
    assert given.low is not None
    assert given.high is not None
    if is_whole(name):
        low, high, step = int(given.low), int(given.high), int(given.step or 1)
        return trial.suggest_int(name, low, high, log=given.log, step=step)
    return trial.suggest_float(name, given.low, given.high, log=given.log, step=given.step)
