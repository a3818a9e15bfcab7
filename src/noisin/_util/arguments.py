"""Checks of plain arguments, such as numbers, text and paths, without torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from inspect import Parameter, signature

from noisin.errors import InvalidType, InvalidValue

LARGEST = 2**63 - 1  # the largest integer of torch and numpy


def whole(
    name: str, value: object, least: int = 1, *, what: str = "a whole number", advice: str = ""
) -> int:
    """Return ``value`` if it is a whole number, ``least`` or more, else raise.

    >>> whole("Windows: length", 0)
    Traceback (most recent call last):
    noisin.errors.InvalidValue: Windows: length must be a whole number, 1 or more, got 0.
    """
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST:
        return value
    bound = f"{least} or more" if not isinstance(value, int) or value <= LARGEST else "below 2⁶³"
    raise InvalidValue(f"{name} must be {what}, {bound}, got {value!r:.60}. {advice}".rstrip())


def finite(
    name: str,
    value: object,
    *,
    least: float | None = None,
    above: float | None = None,
    advice: str = "",
) -> float:
    """Return ``value`` as a float if it is a finite number in bounds, else raise.

    >>> finite("generate: temperature", -1.0, least=0)
    Traceback (most recent call last):
    noisin.errors.InvalidValue: generate: temperature must be a finite number, 0 or more, got -1.0.
    """
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and -sys.float_info.max <= value <= sys.float_info.max  # an int may be larger
        and (least is None or value >= least)
        and (above is None or value > above)
    ):
        return float(value)
    bound = "" if least is None else f", {least:g} or more"
    bound = bound if above is None else f" above {above:g}"
    raise InvalidValue(
        f"{name} must be a finite number{bound}, got {value!r:.60}. {advice}".rstrip()
    )


def boolean(name: str, value: object) -> None:
    """Raise unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise InvalidType(f"{name} must be True or False, got {value!r:.60}.")


def path(name: str, value: object) -> None:
    """Raise unless ``value`` can be the path of a file or folder."""
    if not isinstance(value, str | os.PathLike):
        raise InvalidType(f"{name} must be a path, got {value!r:.60}. Pass a string or a Path.")
    if "\0" in str(value):
        raise InvalidValue(f"{name} must be a path, and {value!r:.60} has a NUL character.")


def instance(name: str, value: object, kind: type, advice: str) -> None:
    """Raise unless ``value`` is an instance of ``kind``."""
    if not isinstance(value, kind):
        got = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise InvalidType(f"{name} must be a {kind.__name__}, got {got}. {advice}")


def items(name: str, value: object, what: str) -> None:
    """Raise unless ``value`` is iterable and not text."""
    if (
        isinstance(value, str | bytes | type)
        or not isinstance(value, Iterable)
        or getattr(value, "ndim", 1) != 1  # an array of other dimensions
    ):
        raise InvalidType(f"{name} must be a list of {what}, got {value!r:.60}.")


def takes(function: Callable[..., object], count: int) -> bool:
    """Whether ``function`` accepts ``count`` positional arguments, by its signature."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # a built-in function without a signature
        return True
    if any(p.kind is Parameter.VAR_POSITIONAL for p in parameters):
        return True
    positional = [
        p
        for p in parameters
        if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    required = [p for p in positional if p.default is Parameter.empty]
    return len(required) <= count <= len(positional)


def takes_keyword(function: Callable[..., object], name: str) -> bool:
    """Whether ``function`` accepts an argument of this name, by its signature.

    >>> takes_keyword(whole, "least"), takes_keyword(whole, "most")
    (True, False)
    """
    try:
        parameters = signature(function).parameters
    except (TypeError, ValueError):  # a built-in function without a signature
        return True
    return name in parameters or any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
