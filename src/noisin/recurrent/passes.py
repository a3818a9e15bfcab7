"""One forward pass through a stack of recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from noisin.recurrent.functional import Factors
from noisin.recurrent.layout import Layout

Input = Tensor | PackedSequence
# The noise of a layer in each direction, (*lead, H_out), as a tensor in dtype and device.
NoiseOf = Callable[[int, Tensor], list[Tensor]]


@dataclass(frozen=True)
class Pass:
    """What one forward pass runs with.

    ``weights`` are those of each layer and direction, as ``all_weights``; the mask is
    ``(layers · directions, *lead, H_out)``, and so are the factors on the transition. A mask may
    have more columns, one mask for each gate.
    """

    layout: Layout
    layers: Collection[int]  # that have noise
    noise: NoiseOf
    weights: Sequence[Sequence[Tensor]]
    mask: Tensor | None = None
    factors: Factors = Factors()  # noqa: RUF009 - immutable
    torch_kernel: bool = True  # where nothing else is needed

    @property
    def loops(self) -> bool:
        """Whether no recurrence is torch's."""
        return not self.torch_kernel or self.mask is not None or bool(self.factors.given)

    def rows(self, k: int, like: Tensor) -> tuple[Tensor | None, Factors]:
        """The mask and the factors of the k-th layer and direction, as rows."""

        def of(value: Tensor) -> Tensor:
            return value[k].flatten(0, -2).to(like)

        return None if self.mask is None else of(self.mask), self.factors.map(of)
