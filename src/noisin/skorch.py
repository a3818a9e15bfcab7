"""Noise in a model that skorch trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noisin._util import optional
from noisin.recurrent.convert import Where
from noisin.recurrent.scheduled import ScheduledNoise, Share

_Callback = optional.base("skorch.callbacks:Callback")


class NoiseNetCallback(_Callback):  # type: ignore[misc, valid-type]
    """Converts the RNNs of a net's module when ``fit`` begins, and reverts them when it ends.

    The arguments are those of :class:`noisin.lightning.NoiseCallback`, with the other arguments of
    :func:`noisin.convert` in a mapping ``settings``, so that scikit-learn can clone it.
    """

    def __init__(
        self, noise: Any, where: Where | None = None, schedule: Share | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        optional.require(type(self), "skorch")
        self.noise, self.where, self.schedule, self.settings = noise, where, schedule, settings

    def initialize(self) -> Any:  # noqa: D102
        self.scheduled_ = ScheduledNoise(
            self.noise, where=self.where, schedule=self.schedule, **(self.settings or {})
        )
        return self

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **_: Any) -> None:  # noqa: ARG002, D102
        self.scheduled_.begin(net.module_)

    def on_epoch_begin(self, net: Any, **_: Any) -> None:  # noqa: D102
        self.scheduled_.epoch(len(net.history) - 1)

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **_: Any) -> None:  # noqa: ARG002, D102
        self.scheduled_.end()
