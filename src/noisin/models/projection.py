"""The projection between the layers and the head."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from noisin._util import arguments
from noisin.regularizers.sequences import Dropout


class DownProjection(nn.Module):
    """A linear map without bias from H to E features, then dropout (Melis et al., 2017).

    With it, wide layers predict by the weights of a narrow embedding.

    Args:
        in_features, out_features: H and E.
        dropout: the drop rate of the result.
        locked: whether all steps have one mask.
        generator: the random stream of initialisation and dropout.

    >>> DownProjection(6, 2)(torch.zeros(5, 1, 6)).shape
    torch.Size([5, 1, 2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        dropout: float = 0.0,
        locked: bool = False,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        arguments.whole("DownProjection: in_features", in_features)
        arguments.whole("DownProjection: out_features", out_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.dropout = Dropout(dropout, locked, generator)
        self.reset_parameters(generator)

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Rows that are orthogonal and of length one, or columns if there are fewer of them."""
        nn.init.orthogonal_(self.weight, generator=generator)

    def forward(self, z: Tensor) -> Tensor:
        """``(T, N, H)`` to ``(T, N, E)``."""
        projected: Tensor = self.dropout(z @ self.weight.t())
        return projected

    def extra_repr(self) -> str:
        """The sizes."""
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}"
