"""Types of arguments shared by several commands, stricter than int() and float()."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from noisin._util.wording import NOT_TEXT, shown
from noisin.errors import InvalidValue


def _whole_number(_: type, tokens: Sequence[Any]) -> int:
    text = tokens[0].value
    if not re.fullmatch(r"-?[0-9]{1,30}", text):
        raise ValueError(f"expected a whole number, got {shown(text, 60)}.")
    return int(text)


def _number(_: type, tokens: Sequence[Any]) -> float:
    text = tokens[0].value
    if not re.fullmatch(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", text, re.IGNORECASE):
        raise ValueError(f"expected a number, got {shown(text, 60)}.")
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"expected a finite number, got {shown(text, 60)}.")
    return value


def require_text(name: str, value: object) -> None:
    """Raise if a path or name contains bytes that are not text, which JSON cannot represent."""
    try:
        str(value).encode()
    except UnicodeEncodeError:
        raise InvalidValue(f"{name} must be text, got {shown(str(value))}. {NOT_TEXT}") from None


WholeNumber = Annotated[int, Parameter(converter=_whole_number)]
Number = Annotated[float, Parameter(converter=_number)]
Switch = Annotated[bool, Parameter(negative="", show_default=False)]
