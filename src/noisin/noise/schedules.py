"""How the strength of noise changes over the epochs, without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from noisin._util import arguments
from noisin.errors import InvalidType, InvalidValue

Kind = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class Ramp:
    """The share of a noise's standard deviation in each epoch, counted from 0.

    Args:
        kind: the way from ``start`` to ``end``; ``"constant"`` is the full noise throughout.
        epochs: the epochs it takes; then the share stays at ``end``.
        start: the share in the first epoch.
        end: the share after these epochs.

    >>> warm_up = Ramp("linear", epochs=4)
    >>> [warm_up(epoch) for epoch in range(6)]
    [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    """

    kind: Kind = "constant"
    epochs: int = 1
    start: float = 0.0
    end: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in get_args(Kind):
            kinds = ", ".join(map(repr, get_args(Kind)))
            raise InvalidValue(f"Ramp: kind must be one of {kinds}, got {self.kind!r:.60}.")
        arguments.whole("Ramp: epochs", self.epochs)
        for name in ("start", "end"):
            arguments.finite(f"Ramp: {name}", getattr(self, name), least=0)

    def __call__(self, epoch: int) -> float:
        """The share in an epoch."""
        if self.kind == "constant":
            return 1.0
        fraction = min(1.0, epoch / self.epochs)
        if self.kind == "cosine":
            fraction = (1 - math.cos(math.pi * fraction)) / 2
        return self.start + (self.end - self.start) * fraction


def scaled(noise: Any, share: float) -> Any:
    """A noise, or one per layer, with this share of its standard deviation.

    >>> from noisin.noise import Gamma
    >>> scaled(Gamma(0.4, alpha=3.0), 0.5)
    Gamma(gamma=0.2, alpha=3.0)
    """
    if isinstance(noise, list | tuple):
        return [scaled(one, share) for one in noise]
    if noise is None or share == 1:
        return noise
    make = getattr(type(noise), "from_variance", None)
    if make is None:
        raise InvalidType(
            f"schedule: {type(noise).__name__} needs a class method from_variance(variance) to "
            f"have another strength. Define it, or leave the schedule out."
        )
    alpha = {"alpha": noise.alpha} if hasattr(noise, "alpha") else {}
    return make(arguments.finite("schedule: share", share, least=0) ** 2 * noise.variance, **alpha)
