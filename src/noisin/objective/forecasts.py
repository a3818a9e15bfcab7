"""Forecasts with the noise on: what forecasters know as Monte Carlo dropout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from noisin._util import arguments, checks
from noisin.errors import InvalidType, InvalidValue
from noisin.recurrent import samples
from noisin.recurrent.injection import injected_modules, noise_on


@dataclass(frozen=True)
class Forecast:
    """K forecasts of the same values, ``samples``: ``(K, ...)``."""

    samples: Tensor

    def __post_init__(self) -> None:
        checks.require_real("objective.Forecast", samples=self.samples)
        if self.samples.dim() == 0 or self.samples.numel() == 0:
            raise InvalidValue(
                f"objective.Forecast: expected samples (K, ...) with K > 0, not empty, got "
                f"{tuple(self.samples.shape)}."
            )

    @property
    def mean(self) -> Tensor:
        """The mean of the samples."""
        return self.samples.mean(0)

    @property
    def std(self) -> Tensor:
        """The standard deviation of the samples; nan for K = 1."""
        if len(self.samples) == 1:
            return torch.full_like(self.samples[0], torch.nan)
        return self.samples.std(0)

    def quantile(self, q: float | Sequence[float]) -> Tensor:
        """The quantiles of the samples, ``(...)``, or ``(Q, ...)`` for a list of Q.

        >>> Forecast(torch.arange(11.0)).quantile([0.1, 0.5])
        tensor([1., 5.])
        """
        single = isinstance(q, int | float)
        if not single:
            arguments.items("Forecast.quantile: q", q, "numbers in [0, 1]")
        levels = [_fraction("Forecast.quantile: q", level) for level in ([q] if single else q)]  # type: ignore[union-attr]
        if not levels:
            raise InvalidValue("Forecast.quantile: q must have at least one number in [0, 1].")
        wide = self.samples.to(torch.promote_types(self.samples.dtype, torch.float32))
        values = wide.quantile(wide.new_tensor(levels), dim=0).to(self.samples.dtype)
        return values[0] if single else values

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """The central interval: between the quantiles ``(1 ± level) / 2``."""
        level = _fraction("Forecast: level", level)
        low, high = self.quantile([(1 - level) / 2, (1 + level) / 2])
        return low, high

    def coverage(self, target: Tensor, level: float = 0.9) -> float:
        """The share of ``target`` in the central interval; of a calibrated forecast, the level.

        >>> Forecast(torch.arange(101.0)[:, None]).coverage(torch.tensor([3.0]), 0.9)
        0.0
        """
        checks.require_numbers("Forecast.coverage", target=target)
        checks.require_one_device("Forecast.coverage", samples=self.samples, target=target)
        if target.shape != self.samples.shape[1:]:
            raise InvalidValue(
                f"Forecast.coverage: expected a target of shape {tuple(self.samples.shape[1:])}, "
                f"as each forecast, got {tuple(target.shape)}."
            )
        low, high = self.interval(level)
        return float(((low <= target) & (target <= high)).float().mean())


def _fraction(name: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise InvalidValue(f"{name} must be a number in [0, 1], got {value!r:.60}.")


def forecast(model: nn.Module, fn: Callable[[Any], Tensor], K: int = 100) -> Forecast:
    """Forecast K times with the noise on, in ``train()`` and ``eval()``, without gradients.

    The spread of the forecasts is that of the noise alone, unless ``fn`` draws something else, such
    as an observation from the likelihood that the model predicts. Check it by its coverage.

    Args:
        model: any module that contains noise-injected ones.
        fn: ``fn(model)`` returns one forecast, a tensor whose shape is the same each time.
        K: the number of forecasts.

    >>> import noisin
    >>> rnn = noisin.LSTM(1, 2, noise=noisin.noise.Gaussian(0.5)).eval()
    >>> x = torch.ones(5, 3, 1)
    >>> f = forecast(rnn, lambda rnn: rnn(x)[0][-1], K=50)
    >>> f.mean.shape, f.quantile([0.1, 0.9]).shape
    (torch.Size([3, 2]), torch.Size([2, 3, 2]))
    """
    checks.require_module("forecast", model)
    arguments.whole("forecast: K", K, what=samples.NOISE_SAMPLES)
    if not any(module.noise is not None for module in injected_modules(model)):
        raise InvalidValue(
            f"forecast: {type(model).__name__} contains no module with noise, so all forecasts "
            f"would be alike. Convert it first: noisin.convert(model, noise=...)."
        )
    if not callable(fn) or isinstance(fn, type | nn.Module) or not checks.takes(fn, 1):
        raise InvalidType(
            f"forecast: fn must be a function of the model, got {type(fn).__name__}. Pass, for "
            f"example, lambda model: model(x)[0]."
        )
    found: list[Tensor] = []
    with torch.no_grad(), noise_on(model):
        for _ in range(K):
            one = fn(model)
            checks.require_real("forecast", **{"fn(model)": one})
            if found and one.shape != found[0].shape:
                raise InvalidValue(
                    f"forecast: expected forecasts of one shape, got {tuple(found[0].shape)} and "
                    f"{tuple(one.shape)}."
                )
            found.append(one)
    return Forecast(torch.stack(found))
