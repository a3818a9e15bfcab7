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
    >>> print(dumps({"points": [{"name": "a"}, {"name": "b"}]}))
    [[points]]
    name = "a"
    <BLANKLINE>
    [[points]]
    name = "b"
    """
    return "\n\n".join(_sections(settings, ()))


def _sections(
    settings: Mapping[str, Any], path: tuple[str, ...], listed: bool = False
) -> Iterator[str]:
    """The values of a table, and then its sub-tables; ``listed`` if it is one of a list."""
    tables = {name: inner for name, inner in settings.items() if _is_section(inner)}
    values = {name: v for name, v in settings.items() if name not in tables and v is not None}
    lines = [f"{_key(name)} = {_value(value)}" for name, value in values.items()]
    if path and (lines or not settings or listed):
        name = ".".join(map(_key, path))
        lines.insert(0, f"[[{name}]]" if listed else f"[{name}]")
    if lines:
        yield "\n".join(lines)
    for name, inner in tables.items():
        if isinstance(inner, Mapping):
            yield from _sections(inner, (*path, name))
        else:
            for each in inner:
                yield from _sections(each, (*path, name), listed=True)


def _is_section(value: object) -> bool:
    """Whether a value is a table, or a list of tables."""
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return all(isinstance(each, Mapping) for each in value)
    return isinstance(value, Mapping)


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
