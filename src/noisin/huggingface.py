"""Noise in a model that the Trainer of Hugging Face transformers trains."""

from __future__ import annotations

from typing import Any

from torch import nn

from noisin._util import optional
from noisin.recurrent.convert import Where
from noisin.recurrent.scheduled import ScheduledNoise, Share

_Callback = optional.base("transformers:TrainerCallback")


class NoiseTrainerCallback(_Callback):  # type: ignore[misc, valid-type]
    """Converts the RNNs of a model when training begins, and reverts them when it ends.

    The arguments are those of :class:`noisin.lightning.NoiseCallback`.
    """

    def __init__(
        self, noise: Any, *, where: Where | None = None, schedule: Share | None = None,
        **settings: Any,
    ) -> None:  # fmt: skip
        optional.require(type(self), "transformers")
        super().__init__()
        self.scheduled = ScheduledNoise(noise, where=where, schedule=schedule, **settings)

    def on_train_begin(  # noqa: D102
        self, args: Any, state: Any, control: Any, *, model: nn.Module, **_: Any  # noqa: ARG002
    ) -> None:  # fmt: skip
        self.scheduled.begin(model)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002, D102
        self.scheduled.epoch(int(state.epoch or 0))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002, D102
        self.scheduled.end()
