"""What training needs beside a model and a loss. Names load when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noisin.training.averaging import Average as Average
    from noisin.training.optimizers import adamw as adamw
    from noisin.training.optimizers import sgd as sgd

_HOME = {"Average": "averaging", "adamw": "optimizers", "sgd": "optimizers"}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'noisin.training' has no attribute {name!r}")
    value = getattr(import_module(f"noisin.training.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
