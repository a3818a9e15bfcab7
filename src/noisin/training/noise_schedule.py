"""The noise of each epoch."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from noisin.noise import Noise
from noisin.recurrent.injection import injected_modules, set_noise
from noisin.training.build import build_noise
from noisin.training.config import NoiseConfig
from noisin.training.objectives import NoisePenalty


@dataclass(frozen=True)
class NoiseSchedule:
    """Sets the noise of a model for each epoch; without a config the model is unchanged."""

    config: NoiseConfig | None = None

    def __post_init__(self) -> None:
        self.noise(epoch=0)  # raises before training if the noise cannot have another strength

    def noise(self, epoch: int) -> Noise | None:
        """The noise of an epoch, counted from 0."""
        return build_noise(self.config, epoch)

    def begin(self, model: nn.Module, epoch: int) -> None:
        """Set the noise of the model, or of its penalty, for an epoch."""
        noise = self.noise(epoch)
        if noise is None:
            return
        penalties = [t for t in getattr(model, "terms", ()) if isinstance(t, NoisePenalty)]
        for penalty in penalties:
            penalty.noise = noise
        if not penalties and injected_modules(model):
            set_noise(model, noise)
