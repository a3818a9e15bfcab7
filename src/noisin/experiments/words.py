"""Titles and labels: what a task is, and what distinguishes a point from others of its task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from noisin.experiments.records import comparable, point
from noisin.training.config import DropoutConfig, NoiseConfig, RunConfig

# Settings that are part of the title of the task, or of the words for noise and dropout.
_SHOWN = {"data.name", "noise.family", "noise.gamma", "noise.std", "noise.mode"}
_SHOWN |= {f"model.{name}" for name in ("cell", "hidden_size", "num_layers", "embedding_size")}
_SHOWN |= {
    f"model.{name}" for name in ("tied", "dropout.input", "dropout.between", "dropout.output")
}
# What identifies your own model and task, beside the arguments of their constructors.
_SHOWN |= {f"own.model.{name}" for name in ("name", "class", "weights")}
_SHOWN |= {f"own.task.{name}" for name in ("name", "class", "sha256")}


def task(config: RunConfig) -> str:
    """The text and the model without its regularization, or the names of your own.

    >>> task(RunConfig())
    'manual, LSTM 2×650'
    >>> task(RunConfig.parse({"model": {"cell": "elman-sigmoid", "num_layers": 1, "tied": False}}))
    'manual, Elman-sigmoid 1×650, not tied'
    """
    if (own := _own(config)) is not None:
        return f"{own.task['name']}, {own.model['name']}"
    model = config.model
    cell = model.cell.capitalize() if "-" in model.cell else model.cell.upper()
    embedding = "" if model.embedding_size is None else f", embedding {model.embedding_size}"
    tied = "" if model.tied else ", not tied"
    size = f"{model.num_layers}×{model.hidden_size}"
    return f"{config.data.name}, {cell} {size}{embedding}{tied}"


def points(configs: Sequence[RunConfig]) -> list[str]:
    """A label for each point of a task: noise, dropout, and the settings in which it deviates.

    >>> base = {"noise": {"family": "beta", "gamma": 0.2}}
    >>> configs = [{}, base, base | {"train": {"lr": 10.0}}]
    >>> points([RunConfig.parse(config) for config in configs])
    ['no noise', 'beta γ 0.2', 'beta γ 0.2, lr 10']
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


def _own(config: RunConfig) -> Any:
    """What identifies your own model and task, or None where the settings do."""
    return getattr(config, "own", None)


def noise(config: NoiseConfig | None) -> str:
    """The noise in a few words."""
    if config is None:
        return "no noise"
    spread = f"std {config.std:g}" if config.gamma is None else f"γ {config.gamma:g}"
    return f"{kind(config)} {spread}"


def kind(config: NoiseConfig) -> str:
    """The noise, whatever its spread."""
    return f"{'additive ' if config.mode == 'additive' else ''}{config.family}"


def is_plain(config: RunConfig) -> bool:
    """Whether nothing regularizes the model, as far as the settings show it."""
    model = config.model
    other = getattr(model, "zoneout", None), getattr(model, "gate_dropout", None)
    terms = getattr(config.train, "terms", None)
    off = config.noise is None and not has_dropout(config) and other == (None, None) and not terms
    return off and _own(config) is None


def has_dropout(config: RunConfig) -> bool:
    """Whether there is dropout anywhere."""
    return config.model.dropout != DropoutConfig(locked=config.model.dropout.locked)


def dropout(config: RunConfig) -> str:
    """The dropout of input, between the layers and of the output, in a few words.

    >>> dropout(RunConfig.parse({"model": {"dropout": {"input": 0.5, "output": 0.4}}}))
    'dropout 0.5/0/0.4'
    """
    rates = config.model.dropout.input, config.model.dropout.between, config.model.dropout.output
    if len(set(rates)) == 1:
        return f"dropout {rates[0]:g}"
    return "dropout " + "/".join(f"{rate:g}" for rate in rates)


def _regularized(config: RunConfig) -> str:
    if (own := _own(config)) is not None:
        return str(own.model["name"])
    if not has_dropout(config):
        return noise(config.noise)
    alone = config.noise is None
    return dropout(config) if alone else f"{dropout(config)} + {noise(config.noise)}"


def _others(config: RunConfig) -> dict[str, Any]:
    """The settings that a label does not show otherwise; of dropout only where there is some."""
    return {
        name: value
        for name, value in comparable(config).settings().items()
        if name not in _SHOWN and (has_dropout(config) or not name.startswith("model.dropout"))
    }


def _most_common(values: Sequence[Any]) -> Any:
    return Counter(map(repr, values)).most_common(1)[0][0]


def _is_off(name: str) -> bool:
    """Whether a setting that is absent is off; noise and dropout have their own words for it."""
    return not name.startswith(("noise.", "model.dropout."))


def _deviations(settings: dict[str, Any], usual: dict[str, Any]) -> list[str]:
    found = [
        f"{_called(name)} {_shown(value)}"
        for name, value in settings.items()
        if repr(value) != usual[name]
    ]
    absent = [name for name in usual if name not in settings and _is_off(name)]
    return found + [f"no {_called(name)}" for name in absent if usual[name] != repr(None)]


def _called(name: str) -> str:
    """The last part of the name of a setting, after that of the section that is inside a section.

    >>> _called("train.batch_size"), _called("model.zoneout.p_h"), _called("own.model.arguments.H")
    ('batch size', 'zoneout p h', 'H')
    """
    parts = name.split(".")
    nested = len(parts) > 2 and parts[0] in ("model", "train") and parts[1] != "dropout"
    return " ".join(parts[1:] if nested else parts[-1:]).replace("_", " ")


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
