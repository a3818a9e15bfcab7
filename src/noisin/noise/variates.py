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

    def indicator(self, p: float) -> Tensor:
        """1 with probability p, which must not be tiny, else 0.

        On the CPU in float32 by 16 random bits each, a quarter of the time of ``torch.rand``. What
        p is finer than 16 bits is left to chance, once for all: the probability is p exactly.
        """
        if not self._by_bits:
            u = self.uniform()
            return u.le_(p) if self.is_plain else u.le(p)  # vmap has no rule for le_
        u = torch.rand((), dtype=torch.float64, device=self.device, generator=self.generator)
        below = math.floor(p * 2**16 + float(u)) - 2**15
        k = self._bits(torch.int16)
        return k.le_(below - 1) if below > -(2**15) else k.zero_()

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
        return self._bits(torch.int32).to(torch.float32).add_(0.5).mul_(2.0**-31)

    def _bits(self, dtype: torch.dtype) -> Tensor:
        """Random integers of this dtype, in all of its range: as many of its bits."""
        n = math.prod(self.shape)
        words = torch.empty(-(-n * dtype.itemsize // 8), dtype=torch.int64, device=self.device)
        words.random_(-(2**63), None, generator=self.generator)  # None: to the end of the range
        return words.view(dtype)[:n].view(self.shape)

    def _rand(self) -> Tensor:
        return torch.rand(self.shape, dtype=self.dtype, device=self.device, **self._source)

    @property
    def _source(self) -> dict[str, Any]:
        """The generator, if there is one: torch's functions that take one refuse symbolic sizes."""
        return {} if self.generator is None else {"generator": self.generator}
