"""Settings as TOML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from noisin._util.settings import is_object_name
from noisin.training.config import RunConfig


def as_toml(config: RunConfig) -> str:
    """The settings that differ from their defaults, as a file that ``noisin train`` reads.

    >>> print(as_toml(RunConfig.parse({"noise": {"std": 0.5}, "seed": 7})), end="")
    seed = 7
    <BLANKLINE>
    [noise]
    std = 0.5
    """
    settings = config.model_dump(mode="json", exclude_defaults=True)
    return "\n".join(_tables(settings)) + "\n"


def _tables(settings: Mapping[str, Any], name: str = "") -> list[str]:
    """The lines of a table: its values, and then its sub-tables."""
    values = {
        key: value
        for key, value in settings.items()
        if value is not None and not isinstance(value, Mapping)
    }
    lines = [f"{_key(key)} = {_value(value)}" for key, value in values.items()]
    if name and lines:
        lines = ["", f"[{name}]", *lines]
    for key, value in settings.items():
        if isinstance(value, Mapping):
            inner = f"{name}.{_key(key)}" if name else _key(key)
            lines += _tables(value, inner)
    return lines


def _key(name: str) -> str:
    return json.dumps(name) if is_object_name(name) else name


def _value(value: Any) -> str:
    """A number, a text, or a list of them. JSON is TOML there, except for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
