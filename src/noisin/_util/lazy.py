"""Names of a package that are loaded when first used, so that importing it is fast."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names_of(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], list[str]]:
    """Return a package's ``__getattr__`` and ``__all__``.

    Args:
        package: its ``__name__``.
        homes: for each name, the module that defines it, relative to the package. A module that
            is exported itself is given by its dotted name, such as ``"recurrent.functional"``. A
            leading dot goes one package up, as in an import.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f".{homes[name]}", package)
        itself = homes[name].rpartition(".")[2] == name and not hasattr(module, name)
        value = module if itself else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return get, list(homes)
