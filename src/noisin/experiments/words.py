"""Titles and labels: what a task is, and what distinguishes a point from others of its task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from noisin.experiments.records import comparable, point
from noisin.training.config import (
    DropoutConfig,
    ModelConfig,
    NoiseConfig,
    RunConfig,
    TrainConfig,
)
from noisin.training.config.objective import SECTIONS

# Settings that are part of the title of the task, or of the words for noise and regularizers.
_SHOWN = {"data.name", "data.task", "noise.family", "noise.gamma", "noise.std", "noise.mode"}
_SHOWN |= {"noise.mean", "noise.rescaled"}
_SHOWN |= {f"model.{name}" for name in ("cell", "hidden_size", "num_layers", "embedding_size")}
_SHOWN |= {
    f"model.{name}" for name in ("tied", "dropout.input", "dropout.between", "dropout.output")
}
_SHOWN |= {f"model.dropout.{name}" for name in ("words", "words_shared", "law")}
_SHOWN |= {f"model.{name}" for name in ("last_size", "output_bias", "skip", "projection.dropout")}
# What identifies your own model and task, beside the arguments of their constructors.
_SHOWN |= {f"own.model.{name}" for name in ("name", "class", "weights")}
_SHOWN |= {f"own.task.{name}" for name in ("name", "class", "sha256")}
_SECTIONS = (
    *("cell_arguments", "zoneout", "gate_dropout", "update_dropout"),
    *("weight_drop", "weight_noise", "head", "latent"),
)
_SHOWN_SECTIONS = (
    *(f"model.{name}." for name in _SECTIONS),
    *(f"train.{name}." for name in ("terms", "importance", "fraternal", "augmented_loss")),
)
_KINDS = {"text": "text", "characters": "text", "music": "music", "series": "series"}
_PASSES = {"fraternal": "fraternal dropout", "pi": "Π-model"}


def task(config: RunConfig) -> str:
    """The text and the model without its regularization, or the names of your own.

    >>> task(RunConfig())
    'manual, LSTM 2×650'
    >>> task(RunConfig.parse({"model": {"cell": "elman-sigmoid", "num_layers": 1, "tied": False}}))
    'manual, Elman-sigmoid 1×650, not tied'
    >>> task(RunConfig.parse({"model": {"head": {"kind": "mine.heads:Mixture", "experts": 15}}}))
    'manual, LSTM 2×650, head mine.heads:Mixture (experts 15)'
    >>> model = {"embedding_size": 268, "skip": True, "projection": {"dropout": 0.3}}
    >>> task(RunConfig.parse({"model": model}))
    'manual, LSTM 2×650, embedding 268, skip connections, projection'
    >>> latent = {"kind": "srnn", "z_size": 100, "smoothing": False}
    >>> model = {"hidden_size": 300, "num_layers": 1, "tied": False, "latent": latent}
    >>> task(RunConfig.parse({"data": {"name": "jsb"}, "model": model}))
    'jsb, SRNN of LSTM 1×300 (z_size 100, mlp_size 300, smoothing False)'
    >>> task(RunConfig.parse({"model": {"cell": "highway", "cell_arguments": {"depth": 10}}}))
    'manual, Highway 2×650 (depth 10)'
    """
    if (own := config.own) is not None:
        return f"{_name(own.task)}, {_name(own.model)}"
    model = config.model
    parts = [config.data.name]
    if config.data.task is not None:
        parts.append(f"task {config.data.task}")
    size = f"{model.num_layers}×{model.hidden_size}"
    layers = f"{_cell(model.cell)} {size}{_arguments(model.cell_arguments)}"
    if (latent := model.latent) is not None:
        sizes = {"z_size": latent.z_size, "mlp_size": latent.mlp_size or model.hidden_size}
        layers = f"{_latent(latent.kind)} of {layers}{_arguments(sizes | latent.options)}"
    parts.append(layers)
    if model.embedding_size is not None:
        parts.append(f"embedding {model.embedding_size}")
    if model.last_size is not None:
        parts.append(f"last layer {model.last_size}")
    structure = {
        "not tied": not model.tied and _has_words(config),
        "no output bias": not model.output_bias,
        "skip connections": model.skip,
        "projection": model.projection is not None,
    }
    parts += [words for words, given in structure.items() if given]
    if model.head is not None:
        parts.append(f"head {model.head.kind}{_arguments(model.head.arguments)}")
    return ", ".join(parts)


def subject(configs: Iterable[RunConfig]) -> str:
    """What the data of all these runs is: text, music, a series, or data of several kinds.

    >>> untied = {"model": {"tied": False}}
    >>> jsb, bikes = (RunConfig.parse({"data": {"name": n}} | untied) for n in ("jsb", "bikes"))
    >>> subject([RunConfig()]), subject([jsb]), subject([jsb, bikes])
    ('text', 'music', 'data')
    """
    kinds = {"data" if c.own is not None else _KINDS.get(c.data.task_name, "data") for c in configs}
    return kinds.pop() if len(kinds) == 1 else "data"


def _has_words(config: RunConfig) -> bool:
    """Whether there may be embeddings that the output could share."""
    row = config.data.task_row
    return row is None or row.words


def _arguments(given: Mapping[str, Any]) -> str:
    shown = ", ".join(f"{name} {_shown(value)}" for name, value in given.items())
    return f" ({shown})" if shown else ""


def _cell(name: str) -> str:
    """The name of a cell in words.

    >>> _cell("gru"), _cell("elman-tanh"), _cell("layer-norm-lstm"), _cell("min-gru")
    ('GRU', 'Elman-tanh', 'Layer-norm LSTM', 'minGRU')
    """
    if ":" in name:  # package.module:Class
        return name
    kind, _, base = name.rpartition("-")
    if base in ("lstm", "gru"):
        if kind == "min":  # as its authors write it
            return f"min{base.upper()}"
        return f"{kind.capitalize()} {base.upper()}".strip()
    return name.capitalize()


def _latent(kind: str) -> str:
    """The name of a stochastic RNN in words.

    >>> _latent("vrnn"), _latent("srnn-independent"), _latent("z-forcing"), _latent("mine:Own")
    ('VRNN', 'independent SRNN', 'Z-forcing', 'mine:Own')
    """
    if ":" in kind:  # package.module:Class
        return kind
    name, _, variant = kind.partition("-")
    return f"{variant} {name.upper()}".strip() if name != "z" else kind.capitalize()


def _name(own: Mapping[str, Any]) -> str:
    """The name of your own model or task, else its class."""
    return str(own.get("name") or own.get("class") or "unnamed")


def points(configs: Sequence[RunConfig]) -> list[str]:
    """A label for each point of a task: noise, dropout, and the settings in which it deviates.

    >>> base = {"noise": {"family": "beta", "gamma": 0.2}}
    >>> configs = [{}, base, base | {"train": {"lr": 10.0}}]
    >>> points([RunConfig.parse(config) for config in configs])
    ['no noise', 'beta γ 0.2', 'beta γ 0.2, lr 10']
    >>> shuffled = {"train": {"partial_shuffle": True, "state_reset": 0.01}}
    >>> points([RunConfig.parse(config) for config in ({}, {}, shuffled)])[-1]
    'no noise, partial shuffle, state reset 0.01'
    """
    settings = [_others(config) for config in configs]
    names = sorted({name for some in settings for name in some})
    usual = {
        name: _most_common([some.get(name) for some in settings if name in some or _is_off(name)])
        for name in names
    }
    labels = [
        ", ".join([_regularized(config), *_deviations(some, usual)])
        for config, some in zip(configs, settings, strict=True)
    ]
    return [
        label if labels.count(label) == 1 else f"{label}, {point(config)[:8]}"
        for label, config in zip(labels, configs, strict=True)
    ]


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


def _drops_units(config: RunConfig) -> bool:
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
    found = [dropout(config)] if _drops_units(config) else []
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


def _regularized(config: RunConfig) -> str:
    if config.own is not None:
        return _name(config.own.model)
    others = regularizers(config)
    if others and config.noise is None:
        return " + ".join(others)
    return " + ".join([*others, noise(config.noise)])


def _others(config: RunConfig) -> dict[str, Any]:
    """The settings that a label does not show otherwise; of dropout only where there is some."""
    return {
        name: value
        for name, value in comparable(config).settings().items()
        if name not in _SHOWN
        and not name.startswith(_SHOWN_SECTIONS)
        and (_drops_units(config) or not name.startswith("model.dropout"))
        and (config.train.objective not in SECTIONS or name not in ("train.objective", "train.K"))
    }


def _most_common(values: Sequence[Any]) -> Any:
    return Counter(map(repr, values)).most_common(1)[0][0]


def _is_off(name: str) -> bool:
    """Whether a setting that is absent is off; noise and dropout have their own words for it."""
    return not name.startswith(("noise.", "model.dropout."))


def _deviations(settings: dict[str, Any], usual: dict[str, Any]) -> list[str]:
    found = [
        _called(name) if value is True else f"{_called(name)} {_shown(value)}"
        for name, value in settings.items()
        if repr(value) != usual[name]
    ]
    absent = [name for name in usual if name not in settings and _is_off(name)]
    return found + [f"no {_called(name)}" for name in absent if usual[name] != repr(None)]


def _called(name: str) -> str:
    """The last part of the name of a setting, as words.

    >>> _called("train.batch_size"), _called("own.model.arguments.H")
    ('batch size', 'H')
    """
    return name.rpartition(".")[2].replace("_", " ")


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
