"""Settings as TOML: what :mod:`tomllib`, which only reads, does not have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dumps(settings: Mapping[str, Any]) -> str:
    """Nested settings as TOML, without those that are None.

    >>> print(dumps({"seed": 3, "noise": {"std": 0.5, "schedule": {"kind": "linear"}}}))
    seed = 3
    <BLANKLINE>
    [noise]
    std = 0.5
    <BLANKLINE>
    [noise.schedule]
    kind = "linear"
    """
    return "\n\n".join(_sections(settings, ()))


def _sections(settings: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    values = {name: v for name, v in settings.items() if not isinstance(v, Mapping | None)}
    lines = [f"{_key(name)} = {_value(value)}" for name, value in values.items()]
    if path and (lines or not settings):
        lines.insert(0, f"[{'.'.join(map(_key, path))}]")
    if lines:
        yield "\n".join(lines)
    for name, inner in settings.items():
        if isinstance(inner, Mapping):
            yield from _sections(inner, (*path, name))


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):  # within a list
        pairs = (f"{_key(name)} = {_value(inner)}" for name, inner in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_value, value))}]"
    raise TypeError(f"TOML has no {type(value).__name__}")


def _text(text: str) -> str:
    """A basic string: JSON's escapes are TOML's, except for DEL, which JSON leaves as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
