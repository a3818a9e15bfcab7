"""Noise, dropout and other regularizers of a run, each in a few words."""

from __future__ import annotations

import math
from collections.abc import Mapping

from noisin.training.config import (
    DropoutConfig,
    ModelConfig,
    NoiseConfig,
    RunConfig,
    TrainConfig,
)

_PASSES = {"fraternal": "fraternal dropout", "pi": "Π-model"}


def noise(config: NoiseConfig | None) -> str:
    """The noise in a few words."""
    if config is None:
        return "no noise"
    spread = f"std {config.std:g}" if config.gamma is None else f"γ {config.gamma:g}"
    return f"{kind(config)} {spread}"


def kind(config: NoiseConfig) -> str:
    """The noise, whatever its spread.

    >>> from noisin.training.config import NoiseConfig
    >>> kind(NoiseConfig(std=0.5)), kind(NoiseConfig(std=0.5, mean=0.8, rescaled=False))
    ('gaussian', 'gaussian of mean 0.8 in training')
    """
    mean = "" if config.mean == 1 else f" of mean {config.mean:g}"
    only = " in training" if mean and not config.rescaled else ""
    return f"{'additive ' if config.mode == 'additive' else ''}{config.family}{mean}{only}"


def is_plain(config: RunConfig) -> bool:
    """Whether nothing regularizes the model, as far as the settings show it."""
    return config.noise is None and config.own is None and not regularizers(config)


def has_dropout(config: RunConfig) -> bool:
    """Whether there is dropout anywhere."""
    dropout = config.model.dropout
    return dropout != DropoutConfig(locked=dropout.locked, law=dropout.law)


def drops_units(config: RunConfig) -> bool:
    """Whether there is dropout of units; that of words is named by itself."""
    without_words = {"words": 0.0, "words_shared": False}
    model = config.model.model_copy(
        update={"dropout": config.model.dropout.model_copy(update=without_words)}
    )
    return has_dropout(config.model_copy(update={"model": model}))


def dropout(config: RunConfig) -> str:
    """The dropout of input, between the layers and of the output, in a few words.

    >>> dropout(RunConfig.parse({"model": {"dropout": {"input": 0.5, "output": 0.4}}}))
    'dropout 0.5/0/0.4'
    """
    rates = config.model.dropout.input, config.model.dropout.between, config.model.dropout.output
    if len(set(rates)) == 1:
        return f"{_law(config)}dropout {rates[0]:g}"
    return f"{_law(config)}dropout " + "/".join(f"{rate:g}" for rate in rates)


def _law(config: RunConfig) -> str:
    """The law of the masks of units, unless it is Bernoulli's."""
    law = config.model.dropout.law
    return "" if law == "bernoulli" else f"{law} "


def dropout_std(config: RunConfig) -> float | None:
    """The standard deviation of the noise that dropout is: ``sqrt(p / (1 - p))`` at rate p.

    Dropout multiplies by 0, or by 1 / (1 - p): a mean of one. None where the rates of the places
    that drop differ, or where something else regularizes the model too.

    >>> equal = {"input": 0.2, "between": 0.2, "output": 0.2}
    >>> dropout_std(RunConfig.parse({"model": {"dropout": equal}}))
    0.5
    >>> dropout_std(RunConfig.parse({"model": {"dropout": {"between": 0.2, "output": 0.2}}}))
    0.5
    >>> dropout_std(RunConfig.parse({"model": {"dropout": {"input": 0.2, "output": 0.1}}})) is None
    True
    """
    places = config.model.dropout.input, config.model.dropout.between, config.model.dropout.output
    rates = {rate for rate in places if rate} or {0.0}
    alone = config.noise is None and regularizers(config) == [dropout(config)]
    if not alone or len(rates) > 1:
        return None
    (p,) = rates
    return math.sqrt(p / (1 - p))


def regularizers(config: RunConfig) -> list[str]:
    """Dropout, zoneout, random weights, objectives and terms, each in a few words.

    >>> model = {"gate_dropout": {"x": 0.5, "h": 0.4}, "zoneout": {"p_h": 0.025, "p_c": 0.25}}
    >>> config = RunConfig.parse({"model": model, "train": {"terms": {"mine:Slow": 2}}})
    >>> regularizers(config)
    ['gate dropout 0.5/0.4', 'zoneout 0.025/0.25', 'mine:Slow 2']
    >>> model = {"gate_dropout": {"x": 0.5, "h": 0.3, "site": "before", "locked": True}}
    >>> regularizers(RunConfig.parse({"model": model}))
    ['gate dropout 0.5/0.3 (locked, before)']
    >>> regularizers(RunConfig.parse({"model": {"update_dropout": {"p": 0.25}}}))
    ['update dropout 0.25']
    >>> regularizers(RunConfig.parse({"model": {"dropout": {"input": 0.5, "law": "gaussian"}}}))
    ['gaussian dropout 0.5/0/0']
    """
    terms = [f"{name} {weight:g}" for name, weight in config.train.terms.items()]
    return [
        *_of_units(config),
        *_of_words_and_weights(config.model),
        *_of_objectives(config.train),
        *terms,
    ]


def _of_units(config: RunConfig) -> list[str]:
    gates, zoneout = config.model.gate_dropout, config.model.zoneout
    updates, projection = config.model.update_dropout, config.model.projection
    found = [dropout(config)] if drops_units(config) else []
    if gates is not None:
        kinds = {"locked": gates.locked, "before": gates.site == "before", "shared": gates.shared}
        found.append(f"gate dropout {gates.x:g}/{gates.h:g}{_switches(kinds)}")
    if updates is not None:
        kinds = {"locked": updates.locked}
        found.append(f"{_law(config)}update dropout {updates.p:g}{_switches(kinds)}")
    if zoneout is not None:
        found.append(f"zoneout {zoneout.p_h:g}/{zoneout.p_c:g}")
    if projection is not None and projection.dropout:
        found.append(f"{_law(config)}projection dropout {projection.dropout:g}")
    return found


def _of_objectives(train: TrainConfig) -> list[str]:
    """What is trained on beside the likelihood under one sample of the noise.

    >>> _of_objectives(RunConfig.parse({"train": {"objective": "fraternal"}}).train)
    ['fraternal dropout κ 0.15']
    >>> token = {"objective": "importance", "K": 5, "importance": {"group": "token"}}
    >>> _of_objectives(RunConfig.parse({"train": token}).train)
    ['5 samples weighted by token']
    >>> _of_objectives(RunConfig.parse({"train": {"augmented_loss": {"gamma": 0.65}}}).train)
    ['augmented loss 0.65']
    """
    importance, fraternal, augmented = train.importance, train.fraternal, train.augmented_loss
    found = []
    if importance is not None:
        found.append(f"{train.K} samples weighted by {importance.group}")
    if fraternal is not None:
        found.append(f"{_PASSES.get(fraternal.mode, fraternal.mode)} κ {fraternal.kappa:g}")
    if augmented is not None:
        tau = "" if augmented.temperature == 20 else f" τ {augmented.temperature:g}"
        found.append(f"augmented loss {augmented.gamma:g}{tau}{'' if augmented.detach else ' ∇'}")
    return found


def _of_words_and_weights(model: ModelConfig) -> list[str]:
    """Dropout of word types, weight drop and weight noise.

    >>> noise = {"std": 0.05, "mode": "multiplicative", "per": "step"}
    >>> model = {"weight_noise": noise, "dropout": {"words": 0.1, "words_shared": True}}
    >>> _of_words_and_weights(RunConfig.parse({"model": model}).model)
    ['word dropout 0.1 per batch', 'multiplicative weight noise 0.05 per step']
    """
    drop, noise = model.weight_drop, model.weight_noise
    found = []
    if model.dropout.words:
        shared = " per batch" if model.dropout.words_shared else ""
        found.append(f"word dropout {model.dropout.words:g}{shared}")
    if drop is not None:
        found.append(f"weight drop {drop.p:g}{' of all weights' if drop.inputs else ''}")
    if noise is not None:
        mode = "" if noise.mode == "additive" else f"{noise.mode} "
        per = "" if noise.per == "sequence" else f" per {noise.per}"
        found.append(f"{mode}weight noise {noise.std:g}{per}")
    return found


def _switches(kinds: Mapping[str, bool]) -> str:
    on = ", ".join(name for name, value in kinds.items() if value)
    return f" ({on})" if on else ""
