"""Labels: what distinguishes a point from others of its task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from noisin.experiments.records import comparable, point
from noisin.experiments.words.regularized import drops_units, noise, regularizers
from noisin.experiments.words.titles import own_name, shown
from noisin.training.config import RunConfig
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


def _regularized(config: RunConfig) -> str:
    if config.own is not None:
        return own_name(config.own.model)
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
        and (drops_units(config) or not name.startswith("model.dropout"))
        and (config.train.objective not in SECTIONS or name not in ("train.objective", "train.K"))
    }


def _most_common(values: Sequence[Any]) -> Any:
    return Counter(map(repr, values)).most_common(1)[0][0]


def _is_off(name: str) -> bool:
    """Whether a setting that is absent is off; noise and dropout have their own words for it."""
    return not name.startswith(("noise.", "model.dropout."))


def _deviations(settings: dict[str, Any], usual: dict[str, Any]) -> list[str]:
    found = [
        _called(name) if value is True else f"{_called(name)} {shown(value)}"
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
