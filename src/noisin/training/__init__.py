"""Training of any sequence model on any task: settings, loop, checkpoints, records.

Names are loaded lazily, so that settings and records do not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noisin._util import lazy

if TYPE_CHECKING:
    from noisin.training.averaging import Average as Average
    from noisin.training.config import RunConfig as RunConfig
    from noisin.training.config import TrainConfig as TrainConfig
    from noisin.training.from_config import run as run
    from noisin.training.load import restore as restore
    from noisin.training.optim import adamw as adamw
    from noisin.training.optim import sgd as sgd
    from noisin.training.record import RunRecord as RunRecord
    from noisin.training.runtime.signals import Interrupted as Interrupted
    from noisin.training.trainer import Trainer as Trainer

_HOMES = {
    "Average": "averaging",
    "Interrupted": "runtime.signals",
    "RunConfig": "config",
    "RunRecord": "record",
    "TrainConfig": "config",
    "Trainer": "trainer",
    "run": "from_config",
    "adamw": "optim",
    "restore": "load",
    "sgd": "optim",
}

__getattr__, __all__ = lazy.names_of(__name__, _HOMES, extra="train")


def __dir__() -> list[str]:
    return sorted(__all__)
