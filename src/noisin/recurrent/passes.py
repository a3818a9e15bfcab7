"""One forward pass through a stack of recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from noisin.recurrent.layout import Layout

Input = Tensor | PackedSequence
# The noise of a layer in each direction, (*lead, H_out), as a tensor in dtype and device.
NoiseOf = Callable[[int, Tensor], list[Tensor]]


@dataclass(frozen=True)
class Pass:
    """What one forward pass runs with.

    ``weights`` are those of each layer and direction, as ``all_weights``; the mask is
    ``(layers · directions, *lead, H_out)``.
    """

    layout: Layout
    layers: Collection[int]  # that have noise
    noise: NoiseOf
    weights: Sequence[Sequence[Tensor]]
    mask: Tensor | None = None
