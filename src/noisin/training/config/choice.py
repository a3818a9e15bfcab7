"""Settings that are a name from a list or a custom class."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from noisin._util.settings import is_object_name
from noisin._util.wording import shown
from noisin.training.config.section import Problem

CUSTOM = "package.module:Class"


class OneOf:
    """Accepts the names of a list, and any name of the form ``package.module:Class``.

    The class is not loaded: a record can be read where it is not installed.

    >>> OneOf(["lstm", "gru"])("ltsm")
    Traceback (most recent call last):
    ValueError: must be lstm, gru or package.module:Class, got 'ltsm'. Did you mean lstm?
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names = tuple(names)

    def __call__(self, name: str) -> str:
        """Return the name, or raise."""
        if name in self.names or is_object_name(name):
            return name
        near = difflib.get_close_matches(name, self.names, n=1)
        expected = " or ".join(filter(None, (", ".join(self.names), CUSTOM)))
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ValueError(f"must be {expected}, got {shown(name, 60)}.{hint}")


class Frozen(dict[str, Any]):
    """A dict of JSON values that cannot be changed, so that a config that has one can be hashed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(json.dumps(self, sort_keys=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("the settings of a config cannot be changed")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


def json_values(values: Any, what: str) -> Frozen:
    """Settings without a schema, such as arguments: JSON values by name, or raise."""
    try:
        return Frozen(_as_json(values))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"must have {what} that JSON can represent: {error}.") from None


def json_problems(values: Mapping[str, Any]) -> list[Problem]:
    """The values that JSON cannot represent, by name."""
    found: list[Problem] = []
    for name, value in values.items():
        try:
            _as_json(value)
        except (TypeError, ValueError, RecursionError):
            what = f"must be a value that JSON can represent, got {shown(value, 60)}."
            found.append((name, what))
    return found


def _as_json(values: Any) -> Any:
    return json.loads(json.dumps(values, allow_nan=False, ensure_ascii=False).encode())
