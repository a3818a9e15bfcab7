"""A noise that counts how often it is drawn: whether somebody else's training has noise at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from noisin import noise
from noisin.recurrent.injection import injected_modules


@dataclass(frozen=True)
class Counted(noise.Gaussian):
    """Gaussian noise whose draws are counted, of all instances."""

    draws: ClassVar[list[tuple[int, ...]]] = []

    def sample(self, shape: Sequence[int], *, like: Tensor, generator: Any = None) -> Tensor:
        self.draws.append(tuple(shape))
        return super().sample(shape, like=like, generator=generator)


def law() -> Counted:
    """The noise, with no draws yet."""
    Counted.draws.clear()
    return Counted(0.3)


def assert_trained_with_noise(model: nn.Module) -> None:
    """There were draws, and the model is its author's again."""
    assert Counted.draws
    assert injected_modules(model) == []
    assert not [name for name in model.state_dict() if "noise" in name]
