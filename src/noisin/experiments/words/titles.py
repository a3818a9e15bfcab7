"""What the task of a run is: its data, and its model without regularization."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from noisin.training.config import RunConfig

_KINDS = {"text": "text", "characters": "text", "music": "music", "series": "series"}


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
        return f"{own_name(own.task)}, {own_name(own.model)}"
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
    listed = ", ".join(f"{name} {shown(value)}" for name, value in given.items())
    return f" ({listed})" if listed else ""


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


def own_name(own: Mapping[str, Any]) -> str:
    """The name of your own model or task, else its class."""
    return str(own.get("name") or own.get("class") or "unnamed")


def shown(value: Any) -> str:
    """The value of a setting."""
    return f"{value:g}" if isinstance(value, float) else str(value)
