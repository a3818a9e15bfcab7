"""Labels for people: what a task is, and what distinguishes a point from others of its task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from noisin.experiments.records import comparable
from noisin.training.config import DropoutConfig, NoiseConfig, RunConfig

# Part of the name of the task, of the noise or of a regularizer, or not a matter of the point.
_NAMED = {"data.name", "data.task", "noise.family", "noise.gamma", "noise.std", "noise.mode"}
_NAMED |= {f"model.{name}" for name in ("cell", "hidden_size", "num_layers", "embedding_size")}
_NAMED |= {
    f"model.{name}" for name in ("tied", "dropout.input", "dropout.between", "dropout.output")
}
_NAMED_SECTIONS = ("model.zoneout.", "model.gate_dropout.", "model.head.", "train.terms.", "own.")


def task(config: RunConfig) -> str:
    """The data and the model, without what regularizes it.

    >>> task(RunConfig())
    'manual, LSTM 2×650'
    >>> task(RunConfig.parse({"model": {"cell": "elman-sigmoid", "num_layers": 1, "tied": False}}))
    'manual, Elman-sigmoid 1×650, not tied'
    >>> task(RunConfig.parse({"model": {"head": {"kind": "mine.heads:Mixture", "experts": 15}}}))
    'manual, LSTM 2×650, head mine.heads:Mixture (experts 15)'
    >>> task(RunConfig(own={"model": {"class": "mine:Net"}, "task": {"name": "tides"}}))
    'tides, mine:Net'
    """
    if config.own is not None:
        return f"{_own(config.own.task)}, {_own(config.own.model)}"
    model = config.model
    parts = [config.data.name]
    if config.data.task is not None:
        parts.append(f"task {config.data.task}")
    parts.append(f"{_cell(model.cell)} {model.num_layers}×{model.hidden_size}")
    if model.embedding_size is not None:
        parts.append(f"embedding {model.embedding_size}")
    if not model.tied:
        parts.append("not tied")
    if model.head is not None:
        given = ", ".join(f"{name} {_shown(value)}" for name, value in model.head.arguments.items())
        parts.append(f"head {model.head.kind}" + (f" ({given})" if given else ""))
    return ", ".join(parts)


def _cell(name: str) -> str:
    if ":" in name:
        return name
    return name.capitalize() if "-" in name else name.upper()


def _own(values: Mapping[str, Any]) -> str:
    """The name that a user gave to a model or a task, else its class."""
    return str(values.get("name") or values.get("class") or "unnamed")


def points(configs: Sequence[RunConfig]) -> list[str]:
    """A label for each point of a task: its noise, its regularizers, and what is unusual.

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


def regularizers(config: RunConfig) -> list[str]:
    """What regularizes besides the noise, each in a few words.

    >>> model = {"zoneout": {"p_h": 0.025, "p_c": 0.25}, "gate_dropout": {"x": 0.5, "h": 0.4}}
    >>> config = RunConfig.parse({"model": model, "train": {"terms": {"mine:Slow": 2}}})
    >>> regularizers(config)
    ['gate dropout 0.5/0.4', 'zoneout 0.025/0.25', 'mine:Slow 2']
    """
    gates, zoneout = config.model.gate_dropout, config.model.zoneout
    found = [dropout(config)] if has_dropout(config) else []
    if gates is not None:
        found.append(f"gate dropout {gates.x:g}/{gates.h:g}")
    if zoneout is not None:
        found.append(f"zoneout {zoneout.p_h:g}/{zoneout.p_c:g}")
    return found + [f"{name} {weight:g}" for name, weight in config.train.terms.items()]


def _regularized(config: RunConfig) -> str:
    others = regularizers(config)
    if others and config.noise is None:
        return " + ".join(others)
    return " + ".join([*others, noise(config.noise)])


def _others(config: RunConfig) -> dict[str, Any]:
    """The settings that no other words name; those of dropout only where there is some."""
    return {
        name: value
        for name, value in comparable(config).settings().items()
        if name not in _NAMED
        and not name.startswith(_NAMED_SECTIONS)
        and (has_dropout(config) or not name.startswith("model.dropout"))
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
