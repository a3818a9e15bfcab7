"""Base classes from packages that need not be installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from noisin.errors import Unavailable


def base(*homes: str) -> Any:
    """The first class that can be imported, given as ``package.module:Class``, or ``object``."""
    for home in homes:
        module, _, name = home.partition(":")
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError:
            continue
    return object


def require(kind: type, package: str) -> None:
    """Raise if a class has no base from the package, because that is not installed."""
    if kind.__mro__[1:] == (object,):
        raise Unavailable(
            f"{kind.__module__}.{kind.__name__} needs {package}, which is not installed. Install "
            f"it: pip install {package}."
        )
