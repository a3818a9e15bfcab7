"""Predictors from settings by dotted names, as the command line and records have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from noisin.training.predictors import ensembles
from noisin.training.predictors.base import Clean, Predictor, Reader
from noisin.training.predictors.bounds import ELBO, FIVO, IWAE
from noisin.training.predictors.cache import Cache
from noisin.training.predictors.dynamic import Dynamic
from noisin.training.predictors.monte_carlo import MonteCarlo
from noisin.training.predictors.rates import SGD, Normalisation, Rates
from noisin.training.predictors.statistics import Statistics

USUAL_SEGMENT = 5  # of the default rates

METHODS: Mapping[str, Any] = {
    "marginal": ensembles.Marginal,
    "arithmetic": ensembles.Arithmetic,
    "geometric": ensembles.Geometric,
    "monte-carlo": MonteCarlo,
    "elbo": ELBO,
    "iwae": IWAE,
    "fivo": FIVO,
}


def assemble(
    model: nn.Module,
    method: str,
    settings: Mapping[str, Any],
    statistics: Statistics | None = None,
) -> Predictor:
    """The predictor of a method with a cache, dynamic evaluation, both or neither.

    ``settings`` has ``temperature``, for a method that mixes samples ``K`` and its other arguments,
    and for a cache and dynamic evaluation their arguments as ``cache.window`` and the like.

    >>> from noisin import models
    >>> lm = models.LanguageModel(10, hidden_size=4)
    >>> cache = {"cache.window": 9, "cache.theta": 0.5, "cache.lambda": 0.2}
    >>> type(assemble(lm, "exact", {"temperature": 1.0, **cache})).__name__
    'Cache'
    """
    own = {name: value for name, value in settings.items() if "." not in name}
    if method != "exact":
        mixture: Predictor = METHODS[method](model, **own)
        return mixture
    found: Reader = Clean(model, **own)
    if cache := within("cache", settings):
        found = Cache(found, cache["window"], cache["theta"], cache["lambda"])
    if dynamic := within("dynamic", settings):
        segment = dynamic.pop("segment")
        found = Dynamic(found, Rates(**dynamic), statistics, segment)
    return found


def within(section: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a section, by their names in it."""
    prefix = f"{section}."
    return {n.removeprefix(prefix): v for n, v in settings.items() if n.startswith(prefix)}


def usual_rates(
    normalisation: Normalisation, statistics: Statistics | None, segment: int = USUAL_SEGMENT
) -> Rates:
    """The published rates for segments of five, in proportion to the segment, converted."""
    share = segment / USUAL_SEGMENT
    rates = SGD if normalisation == "sgd" else Rates()
    if normalisation not in ("sgd", rates.normalisation) and statistics is not None:
        rates = rates.converted(normalisation, statistics)
    return replace(rates, lr=rates.lr * share, decay=min(rates.decay * share, 0.5))
