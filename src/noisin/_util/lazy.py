"""Names of a package that are loaded when first used, so that importing it is fast."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from noisin.errors import MissingPackage


def names_of(
    package: str, homes: Mapping[str, str], extra: str = ""
) -> tuple[Callable[[str], Any], list[str]]:
    """Return a package's ``__getattr__`` and ``__all__``.

    Args:
        package: its ``__name__``.
        homes: for each name, the module that defines it, relative to the package. A module that
            is exported itself is given by its dotted name, such as ``"recurrent.functional"``. A
            leading dot goes one package up, as in an import.
        extra: the extra of noisin that installs what the modules import, which may be absent.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with installed(f"{package}.{name}", extra):
            module = import_module(f".{homes[name]}", package)
        itself = homes[name].rpartition(".")[2] == name and not hasattr(module, name)
        value = module if itself else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return get, list(homes)


@contextmanager
def installed(what: str, extra: str) -> Iterator[None]:
    """Say which extra of noisin installs a package that ``what`` imports and that is absent."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not extra or error.name is None or error.name.partition(".")[0] == "noisin":
            raise
        raise MissingPackage(
            f"{what} needs {error.name}, which is not installed: pip install 'noisin[{extra}]'."
        ) from None
