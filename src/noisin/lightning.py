"""Noise in a model that Lightning trains: in yours, or in that of a library built on Lightning.

GluonTS, Darts, NeuralForecast and PyTorch Forecasting take callbacks for their trainer, so this is
all that noise in their RNNs needs. ``docs/frameworks.md`` has an example for each.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from noisin._util import optional
from noisin.recurrent.convert import Where
from noisin.recurrent.scheduled import ScheduledNoise, Share

_Callback = optional.base("lightning.pytorch:Callback", "pytorch_lightning:Callback")


class NoiseCallback(_Callback):  # type: ignore[misc, valid-type]
    """Converts the RNNs of a LightningModule when ``fit`` begins, and reverts them when it ends.

    While training there is noise, in validation there is none, and checkpoints are those of the
    model without noisin: the same keys, loaded by the same code.

    Args:
        noise: a noise, or one per layer.
        where: which RNNs and cells, as in :func:`noisin.convert`. By default all of them.
        schedule: the share of the noise's standard deviation in an epoch, counted from 0, such as
            ``noise.Ramp("linear", epochs=10)``. By default the full noise throughout.
        settings: the other arguments of :func:`noisin.convert`: mode, feedback, noisy_layers, ...
    """

    def __init__(
        self, noise: Any, *, where: Where | None = None, schedule: Share | None = None,
        **settings: Any,
    ) -> None:  # fmt: skip
        optional.require(type(self), "lightning")
        super().__init__()
        self.scheduled = ScheduledNoise(noise, where=where, schedule=schedule, **settings)

    def setup(self, trainer: Any, pl_module: nn.Module, stage: str) -> None:  # noqa: ARG002
        """Convert the model, before its optimizers are configured."""
        if stage == "fit":
            self.scheduled.begin(pl_module)

    def on_train_epoch_start(self, trainer: Any, pl_module: nn.Module) -> None:  # noqa: ARG002
        """Set the noise of the epoch, which a checkpoint that is resumed has."""
        self.scheduled.epoch(trainer.current_epoch)

    def teardown(self, trainer: Any, pl_module: nn.Module, stage: str) -> None:  # noqa: ARG002
        """Revert the model."""
        self.scheduled.end()

    def on_exception(self, trainer: Any, pl_module: nn.Module, exception: Any) -> None:  # noqa: ARG002
        """Revert the model: Lightning does not tear down after an error or Ctrl-C."""
        self.scheduled.end()
