"""A source of uniform and normal variates of one shape, dtype, device and generator."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor

from noisin._util import torch_state


@dataclass(frozen=True)
class Variates:
    """Draws standard variates. Every draw is a new tensor, which the caller may change in place."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    generator: Generator | None

    def widened(self) -> Variates:
        """The same source in float64, for laws that float32 is too coarse for."""
        if self.device.type == "mps":  # has no float64
            return self
        return replace(self, dtype=torch.float64)

    def normal(self) -> Tensor:
        """Standard normal variates."""
        return torch.randn(self.shape, dtype=self.dtype, device=self.device, **self._source)

    def uniform(self) -> Tensor:
        """Uniform variates on (0, 1], finest near 0, so that log(u) is finite and reaches far.

        The least is 2⁻³² in float32 on the CPU, 2⁻²⁴ on other devices and 2⁻⁵³ in float64. What
        lies beyond is cut off a tail by inversion: that much probability, 22, 17 or 37 scales out.
        """
        return self._signed_from_bits().abs_() if self._by_bits else self._rand().neg_().add_(1)

    def signed(self) -> Tensor:
        """Uniform variates on [-1, 1] without 0, finest near it: for laws with two equal tails."""
        if self._by_bits:
            return self._signed_from_bits()
        # torch.rand gives the left ends of equal cells; their middles are symmetric and avoid 0.
        return self._rand().mul_(2).add_(torch.finfo(self.dtype).eps / 2 - 1)

    @property
    def is_plain(self) -> bool:
        """Whether draws are tensors on the CPU with values: not traced, faked or batched."""
        if self.device.type != "cpu" or torch_state.compiling():
            return False
        draw = torch.rand(0, device=self.device, generator=self.generator)  # takes no random bits
        return torch_state.plain(draw)

    @property
    def _by_bits(self) -> bool:
        return self.dtype == torch.float32 and self.is_plain

    def _signed_from_bits(self) -> Tensor:
        """All 32 random bits that ``torch.rand`` draws and cuts to 24, for two thirds of its time.

        A signed integer k stands for the cell [k, k + 1), and its middle avoids 0.
        """
        n = math.prod(self.shape)
        pairs = torch.empty((n + 1) // 2, dtype=torch.int64, device=self.device)
        pairs.random_(-(2**63), None, generator=self.generator)  # None: to the end of the range
        k = pairs.view(torch.int32)[:n].view(self.shape)
        return k.to(torch.float32).add_(0.5).mul_(2.0**-31)

    def _rand(self) -> Tensor:
        return torch.rand(self.shape, dtype=self.dtype, device=self.device, **self._source)

    @property
    def _source(self) -> dict[str, Any]:
        """The generator, if there is one: torch's functions that take one refuse symbolic sizes."""
        return {} if self.generator is None else {"generator": self.generator}
