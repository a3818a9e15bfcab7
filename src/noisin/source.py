"""A source of standard random variates of one shape, dtype, device and generator."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor


@dataclass(frozen=True)
class Source:
    """Draws standard variates. Every draw is a new tensor, which the caller may change in place."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    generator: Generator | None

    def widened(self) -> Source:
        """The same source in float64, for laws that float32 is too coarse for."""
        if self.device.type == "mps":  # has no float64
            return self
        return replace(self, dtype=torch.float64)

    def normal(self) -> Tensor:
        """Standard normal variates."""
        return torch.randn(
            self.shape, dtype=self.dtype, device=self.device, generator=self.generator
        )

    def uniform(self) -> Tensor:
        """Uniform variates on the open interval (0, 1): log(u) and log(1 - u) are finite.

        ``torch.rand`` returns multiples of 2⁻ᵇ in [0, 1), now and then exactly 0. Zero stands for
        the cell [0, 2⁻ᵇ) and is moved to its middle.
        """
        u = torch.rand(self.shape, dtype=self.dtype, device=self.device, generator=self.generator)
        return u.clamp_min_(torch.finfo(self.dtype).eps / 4)

    def log_gamma(self, alpha: float) -> Tensor:
        """Logarithms of standard Gamma(alpha) variates, exact for any alpha > 0.

        ``Gamma(alpha) = Gamma(alpha + 1) · U^(1/alpha)`` keeps small shapes, whose variates
        underflow, on the log scale; float64 keeps large ones, whose variates lie close together.
        """
        wide = self.widened()
        alphas = torch.full(self.shape, alpha + 1.0, dtype=wide.dtype, device=self.device)
        log_variate = torch._standard_gamma(alphas, generator=self.generator).log_()
        return log_variate.add_(wide.uniform().log_(), alpha=1 / max(alpha, 1e-300))
