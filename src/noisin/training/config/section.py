"""The base of the sections of a config: frozen, strict, with clear error messages.

A flag gives a setting as text and a file as a number; both are parsed by the same rules.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from noisin._util.wording import NOT_TEXT, shown
from noisin.errors import InvalidValue

Problem = tuple[str, str]  # the dotted name of a setting, and what is wrong with it


class InvalidConfig(InvalidValue):
    """A config is invalid. One message lists all of its problems."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [f"{name} {what}" if name else what for name, what in self.problems]
        first = "" if len(lines) == 1 else f"{len(lines)} settings are wrong.\n  "
        super().__init__(f"config: {first}" + "\n  ".join(lines))


def _whole(value: object) -> object:
    """An int, or text that represents one; not true, 6.0 or '1_000'."""
    if isinstance(value, bool | float):
        raise ValueError(f"must be a whole number, got {shown(value, 60)}.")
    if isinstance(value, str):
        if not re.fullmatch(r"[+-]?[0-9]{1,30}", value):
            raise ValueError(f"must be a whole number, got {shown(value, 60)}.")
        return int(value)
    return value


def _number(value: object) -> object:
    if isinstance(value, bool) or (isinstance(value, str) and not _reads_as_number(value)):
        raise ValueError(f"must be a number, got {shown(value, 60)}.")
    return value


def _reads_as_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text) is not None


Whole = Annotated[int, BeforeValidator(_whole)]
Number = Annotated[float, BeforeValidator(_number)]


class Section(BaseModel):
    """A group of settings. It is immutable.

    >>> class Example(Section):
    ...     epochs: Whole = 200
    >>> Example(epochs=6.5)
    Traceback (most recent call last):
    noisin.training.config.section.InvalidConfig: config: epochs must be a whole number, got 6.5.
    >>> Example(epoch=6)
    Traceback (most recent call last):
    noisin...InvalidConfig: config: epoch is not a setting. Did you mean epochs?
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InvalidConfig(problems(type(self), error)) from None


def problems(section: type[BaseModel], error: ValidationError) -> list[Problem]:
    """The problems that pydantic found in ``section``, by dotted name and as messages."""
    found: list[Problem] = []
    for item in error.errors(include_url=False):
        name = ".".join(str(part) for part in item["loc"])
        raised = item.get("ctx", {}).get("error")
        if isinstance(raised, InvalidConfig):  # of a section inside this one
            prefix = f"{name}." if name else ""
            found += [(prefix + inner if inner else "", what) for inner, what in raised.problems]
        elif raised is not None:
            # The message of a check of one setting continues its name; that of a section does not.
            alone = not str(raised).startswith("must ")
            found.append(("" if alone else name, str(raised)))
        else:
            found.append((name, _in_words(section, dict(item))))
    return found


def _in_words(section: type[BaseModel], item: dict[str, Any]) -> str:
    got, ctx = item["input"], item.get("ctx", {})
    bounds = {
        "greater_than_equal": ("ge", "must be {} or more"),
        "greater_than": ("gt", "must be more than {}"),
        "less_than_equal": ("le", "must be {} or less"),
        "less_than": ("lt", "must be less than {}"),
    }
    if item["type"] in bounds:
        key, words = bounds[item["type"]]
        return f"{words.format(ctx[key])}, got {shown(got, 60)}."
    if item["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(item["loc"][-1]), section.model_fields, n=1)
        known = ", ".join(section.model_fields)
        advice = f"Did you mean {near[0]}?" if near else f"Available: {known}."
        return f"is not a setting. {advice}"
    if item["type"] == "literal_error":
        return f"must be {ctx['expected']}, got {shown(got, 60)}."
    if item["type"] == "finite_number":
        return f"must be a finite number, got {shown(got, 60)}."
    if item["type"] == "missing":
        return "is missing."
    if item["type"] in {"model_type", "model_attributes_type"}:
        return f"must be a section of settings, got {shown(got, 60)}."
    if item["type"] in {"bool_type", "bool_parsing"}:
        return f"must be true or false, got {shown(got, 60)}."
    if item["type"] == "string_unicode":
        return f"must be text, got {shown(got, 60)}. {NOT_TEXT}"
    message = item["msg"].removeprefix("Input should be ").removeprefix("String should have ")
    return f"must be {message}, got {shown(got, 60)}."
