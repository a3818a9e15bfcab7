"""Your own noise: a frozen dataclass with ``variance`` and ``sample``, or a distribution.

It is checked to be centred when a module takes it, and ``noisin.testing.NoiseContract`` tests the
rest: see :class:`TestSpikes`, which pytest collects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

import noisin
from noisin import noise
from noisin.errors import NoisinError
from noisin.testing import NoiseContract


@dataclass(frozen=True)
class Spikes:
    """Rare blows of either sign: ``±size`` with probability ``rate``, else nothing."""

    rate: float
    size: float

    @property
    def variance(self) -> float:
        return self.rate * self.size**2

    def sample(
        self, shape: Sequence[int], *, like: Tensor, generator: Generator | None = None
    ) -> Tensor:
        u = torch.rand(shape, dtype=torch.float64, device=like.device, generator=generator)
        eps = (u < self.rate / 2).to(like.dtype) - (u > 1 - self.rate / 2).to(like.dtype)
        return self.size * eps


class TestSpikes(NoiseContract):
    def noise(self) -> Spikes:
        return Spikes(rate=0.05, size=2.0)


def main(num_epochs: int = 3) -> float:
    torch.manual_seed(1111)
    laws: dict[str, noise.Noise] = {
        "spikes": Spikes(rate=0.05, size=2.0),
        "a torch distribution": noise.from_distribution(torch.distributions.Uniform(0.0, 1.5)),
        "a family of the paper": noise.Gumbel.from_variance(0.2),
    }
    x = torch.randn(40, 200, 4)
    change = 0.0
    for name, law in laws.items():
        rnn = noisin.GRU(4, 16, noise=law)
        for _ in range(num_epochs):
            noisy = rnn(x)[0]
        with noisin.noise_off(rnn):
            change = (noisy - rnn(x)[0]).square().mean().sqrt().item()
        print(f"{name:22} variance {law.variance:.3f}, rms change of the output {change:.3f}")
    try:
        noisin.GRU(4, 16, noise=noise.from_distribution(torch.distributions.Cauchy(0.0, 1.0)))
    except NoisinError as error:
        print(f"refused: {error}")
    return change


if __name__ == "__main__":
    main()
