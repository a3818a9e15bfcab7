"""Training a language model: settings, the loop, checkpoints, and the record of a run.

Names load when first used: settings and records need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noisin.training.averaging import Average as Average
    from noisin.training.config import RunConfig as RunConfig
    from noisin.training.optimizers import adamw as adamw
    from noisin.training.optimizers import sgd as sgd
    from noisin.training.record import RunRecord as RunRecord
    from noisin.training.restoring import restore as restore
    from noisin.training.signals import Interrupted as Interrupted
    from noisin.training.trainer import Trainer as Trainer

_HOME = {
    "Average": "averaging",
    "Interrupted": "signals",
    "RunConfig": "config",
    "RunRecord": "record",
    "Trainer": "trainer",
    "adamw": "optimizers",
    "restore": "restoring",
    "sgd": "optimizers",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"noisin.training.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'noisin.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
