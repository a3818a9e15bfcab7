"""Unbiased noise regularization for recurrent neural networks.

Names load when first used, so that ``import noisin`` itself is instant and needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noisin import errors as errors
    from noisin import functional as functional
    from noisin import likelihoods as likelihoods
    from noisin import noise as noise
    from noisin import testing as testing
    from noisin.linear import linear_nll as linear_nll

__version__ = "0.1.0"

_MODULES = ("errors", "functional", "likelihoods", "noise", "testing")
_HOME = {
    "linear_nll": "linear",
}

__all__ = ["__version__", *_MODULES, *_HOME]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"noisin.{name}")
    if name in _HOME:
        value = getattr(import_module(f"noisin.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'noisin' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
