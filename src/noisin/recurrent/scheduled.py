"""Noise in a model while it trains, whatever framework trains it: the core of all callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from noisin.errors import InvalidType
from noisin.noise.schedules import scaled
from noisin.recurrent.convert import Where, convert, selected
from noisin.recurrent.injection import NOISE_ATTRIBUTES, Injection, set_noise

Share = Callable[[int], float]


class ScheduledNoise:
    """Convert a model, set its noise in every epoch, and give it back as it was.

    Args:
        noise: a noise, or one per layer, at full strength.
        where: which RNNs and cells, as in :func:`noisin.convert`.
        schedule: the share of the noise's standard deviation in an epoch, counted from 0, such as
            :class:`noisin.noise.Ramp`. By default the full noise throughout.
        settings: the other arguments of :func:`noisin.convert`.

    >>> import torch, noisin
    >>> model = torch.nn.ModuleDict({"rnn": torch.nn.LSTM(2, 3)})
    >>> noise = ScheduledNoise(noisin.noise.Gaussian(0.4), schedule=lambda epoch: 1 / (1 + epoch))
    >>> noise.begin(model)
    >>> noise.epoch(1)
    >>> model["rnn"].noise
    Gaussian(gamma=0.2)
    >>> noise.end()
    >>> type(model["rnn"])
    <class 'torch.nn.modules.rnn.LSTM'>
    """

    def __init__(
        self, noise: Any, *, where: Where | None = None, schedule: Share | None = None,
        **settings: Any,
    ) -> None:  # fmt: skip
        if schedule is not None and not callable(schedule):
            raise InvalidType(
                f"schedule: expected a function from an epoch to a share of the noise, got "
                f"{schedule!r:.60}. Pass, for example, noise.Ramp('linear', epochs=10)."
            )
        names = {"layers" if name == "noisy_layers" else name: v for name, v in settings.items()}
        Injection(noise, **names)  # raises before training
        self.noise, self.where, self.schedule, self.settings = noise, where, schedule, settings
        self._before: list[tuple[nn.Module, type[nn.Module], dict[str, Any]]] = []
        self._at(0)

    def begin(self, model: nn.Module) -> None:
        """Convert the model, with the noise of the first epoch."""
        self.end()
        before = [
            (module, type(module), {n: v for n, v in vars(module).items() if n in NOISE_ATTRIBUTES})
            for _, module in selected(model, self.where)
        ]
        convert(model, self._at(0), where=self.where, **self.settings)
        self._before = before

    def epoch(self, number: int) -> None:
        """Set the noise for an epoch, counted from 0."""
        for module, _, _ in self._before:
            set_noise(module, self._at(number))

    def end(self) -> None:
        """Give the modules their classes and settings back."""
        for module, kind, attributes in self._before:
            module.__class__ = kind
            for name in NOISE_ATTRIBUTES:
                vars(module).pop(name, None)
            vars(module).update(attributes)
        self._before = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_before": []}  # a copy has converted nothing

    def _at(self, epoch: int) -> Any:
        return self.noise if self.schedule is None else scaled(self.noise, self.schedule(epoch))
