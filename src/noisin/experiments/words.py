"""Names for people: what a task is, and what sets a point apart from the others of its task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from noisin.experiments.records import comparable
from noisin.training.config import DropoutConfig, NoiseConfig, RunConfig

# Told by the name of the task, or by that of the noise, or not a matter of the point.
_TOLD = {"data.name", "noise.family", "noise.gamma", "noise.std", "noise.mode"}
_TOLD |= {f"model.{name}" for name in ("cell", "hidden_size", "num_layers", "embedding_size")}
_TOLD |= {
    f"model.{name}" for name in ("tied", "dropout.input", "dropout.between", "dropout.output")
}


def task(config: RunConfig) -> str:
    """The text and the model, without what regularizes it.

    >>> task(RunConfig())
    'manual, LSTM 2×650'
    >>> task(RunConfig.parse({"model": {"cell": "elman-sigmoid", "num_layers": 1, "tied": False}}))
    'manual, Elman-sigmoid 1×650, not tied'
    """
    model = config.model
    cell = model.cell.capitalize() if "-" in model.cell else model.cell.upper()
    embedding = "" if model.embedding_size is None else f", embedding {model.embedding_size}"
    tied = "" if model.tied else ", not tied"
    size = f"{model.num_layers}×{model.hidden_size}"
    return f"{config.data.name}, {cell} {size}{embedding}{tied}"


def points(configs: Sequence[RunConfig]) -> list[str]:
    """A name for each point of a task: its noise, its dropout, and where it is out of line.

    >>> base = {"noise": {"family": "beta", "gamma": 0.2}}
    >>> configs = [{}, base, base | {"train": {"lr": 10.0}}]
    >>> points([RunConfig.parse(config) for config in configs])
    ['no noise', 'beta γ 0.2', 'beta γ 0.2, lr 10']
    """
    settings = [_others(config) for config in configs]
    usual = {
        name: _most_common([some[name] for some in settings if name in some])
        for name in sorted({name for some in settings for name in some})
    }
    return [
        ", ".join([_regularized(config), *_deviations(some, usual)])
        for config, some in zip(configs, settings, strict=True)
    ]


def noise(config: NoiseConfig | None) -> str:
    """The noise in a few words."""
    if config is None:
        return "no noise"
    spread = f"std {config.std:g}" if config.gamma is None else f"γ {config.gamma:g}"
    return f"{kind(config)} {spread}"


def kind(config: NoiseConfig) -> str:
    """The noise, whatever its spread."""
    return f"{'additive ' if config.mode == 'additive' else ''}{config.family}"


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
    if not has_dropout(config):
        return noise(config.noise)
    alone = config.noise is None
    return dropout(config) if alone else f"{dropout(config)} + {noise(config.noise)}"


def _others(config: RunConfig) -> dict[str, Any]:
    """The settings that have no words of their own; those of dropout only where there is some."""
    return {
        name: value
        for name, value in comparable(config).settings().items()
        if name not in _TOLD and (has_dropout(config) or not name.startswith("model.dropout"))
    }


def _most_common(values: Sequence[Any]) -> Any:
    return Counter(map(repr, values)).most_common(1)[0][0]


def _deviations(settings: dict[str, Any], usual: dict[str, Any]) -> list[str]:
    return [
        f"{name.rpartition('.')[2].replace('_', ' ')} {_shown(value)}"
        for name, value in settings.items()
        if repr(value) != usual[name]
    ]


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
