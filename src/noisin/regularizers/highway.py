"""The recurrent highway network (Zilly et al., 2017)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from noisin._util import arguments
from noisin.errors import InvalidValue
from noisin.recurrent.functional import States
from noisin.recurrent.windows import StepInput
from noisin.regularizers.windowed import WindowCell, recur

DEEPEST = 10_000  # layers; more are a slip, and their weights would fill the memory
TRANSFORM_BIAS = -2.0  # mostly carry, before training


class HighwayCell(WindowCell):
    r"""A recurrent transition of D highway layers, coupled: what is not transformed is carried.

    From :math:`s_0 = s_{t-1}`, for l = 1 ... D, with the input in the first layer only,

    .. math::

        h_l &= \tanh(W_H x_t 1[l = 1] + R_{H,l} (m \odot s_{l-1}) + b_{H,l}), \\
        g_l &= \sigma(W_T x_t 1[l = 1] + R_{T,l} (m \odot s_{l-1}) + b_{T,l}), \\
        s_l &= g_l \odot h_l + (1 - g_l) \odot s_{l-1},

    and the new state is :math:`s_D`. The mask m of the variational network is drawn once per
    window, and shared by all D layers, by both products and by all steps. (Zilly et al., *Recurrent
    Highway Networks*, ICML 2017, and their TensorFlow code. The mask on x is that of the input
    dropout of a language model, ``Dropouts(input=..., locked=True)``.)

    Args:
        input_size, hidden_size: the sizes.
        depth: the number D of highway layers.
        p_h, locked, generator: of the mask m, as in
            :class:`~noisin.regularizers.windowed.WindowCell`.

    Biases of the transform gate begin at -2.

    >>> cell = HighwayCell(2, 3, depth=10, p_h=0.25)
    >>> cell(torch.zeros(1, 2)).shape
    torch.Size([1, 3])
    """

    memory = False

    def __init__(
        self, input_size: int, hidden_size: int, *, depth: int = 10, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.depth = arguments.whole("HighwayCell: depth", depth)
        if depth > DEEPEST:
            raise InvalidValue(f"HighwayCell: depth must be {DEEPEST:,} or less, got {depth:,}.")
        H = hidden_size
        self.weight_ih = nn.Parameter(torch.empty(2 * H, input_size))
        # One tensor per layer: the gradient of a slice of a larger one would be as large as it.
        self.weight_hh = nn.ParameterList(torch.empty(2 * H, H) for _ in range(depth))
        self.biases = nn.ParameterList(torch.empty(2 * H) for _ in range(depth))
        self.reset_parameters()

    def _reset_biases(self) -> None:
        for bias in self.biases:
            bias[self.hidden_size :].fill_(TRANSFORM_BIAS)

    def project(self, x: Tensor) -> Tensor:
        """The input's part of the first layer."""
        return F.linear(x, self.weight_ih, self.biases[0])

    def transition(self, x: StepInput, read: Tensor, state: States) -> States:
        """D highway layers."""
        (s,) = state
        for layer, (weight, bias) in enumerate(zip(self.weight_hh, self.biases, strict=True)):
            if layer > 0:
                read = s if x.read is None else s * x.read
            h, g = recur(x.x if layer == 0 else bias, read, weight).chunk(2, dim=-1)
            s = torch.lerp(s.to(h.dtype), h.tanh(), g.sigmoid())
        return (s,)

    def extra_repr(self) -> str:
        """The sizes, the depth and the recurrent dropout."""
        return f"{super().extra_repr()}, depth={self.depth}"
