"""Layer-normalised LSTM and GRU (Ba, Kiros and Hinton, 2016)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from noisin._util import arguments, checks
from noisin.recurrent.functional import States
from noisin.recurrent.windows import StepInput
from noisin.regularizers.windowed import WindowCell

Scope = Literal["all", "gate"]


class LayerNormCell(WindowCell):
    """A cell whose products with x and with h are each normalised over units.

    Args:
        input_size, hidden_size: the sizes.
        scope: one normalisation over ``"all"`` units of gates that are computed together, as in the
            authors' code, or one over the units of each ``"gate"``, as in many others.
        eps: added to the variances.
        options: ``p_h``, ``locked`` and ``generator`` of
            :class:`~noisin.regularizers.windowed.WindowCell`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        scope: Scope = "all",
        eps: float = 1e-5,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        name = type(self).__name__
        checks.one_of(f"{name}: scope", scope, ("all", "gate"))
        self.eps = arguments.finite(f"{name}: eps", eps, above=0)
        self.scope = scope

    def _norm(self, name: str, slots: int) -> None:
        """Create the gain and the shift of a normalisation of so many gates."""
        size = slots * self.hidden_size
        setattr(self, f"gain_{name}", nn.Parameter(torch.empty(size)))
        setattr(self, f"shift_{name}", nn.Parameter(torch.empty(size)))

    def normalized(self, name: str, v: Tensor) -> Tensor:
        """``LN(v)`` with the gain and the shift of this name."""
        gain, shift = getattr(self, f"gain_{name}"), getattr(self, f"shift_{name}")
        if self.scope == "all" or v.shape[-1] == self.hidden_size:
            return F.layer_norm(v, v.shape[-1:], gain, shift, self.eps)
        gates = v.reshape(*v.shape[:-1], -1, self.hidden_size)
        normal = F.layer_norm(gates, gates.shape[-1:], eps=self.eps).view(v.shape)
        return torch.addcmul(shift, normal, gain)

    def extra_repr(self) -> str:
        """The sizes, the scope and the recurrent dropout."""
        return f"{super().extra_repr()}, scope={self.scope!r}, eps={self.eps}"


class LayerNormLSTMCell(LayerNormCell):
    r"""An LSTM with layer normalisation of both products and of the memory.

    .. math::

        (i, f, g, o) &= LN(W x + b; s_x, b_x) + LN(U h; s_h, b_h) + b, \\
        c_t &= \sigma(f) \odot c_{t-1} + \sigma(i) \odot \tanh(g), \\
        h_t &= \sigma(o) \odot \tanh(LN(c_t; s_c, b_c)).

    The one bias b occurs twice, as in the authors' code, ryankiros/layer-norm.

    >>> cell = LayerNormLSTMCell(2, 3, scope="gate")
    >>> h, c = cell(torch.zeros(1, 2))
    >>> h.shape
    torch.Size([1, 3])
    """

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self._gates(4)
        for name, slots in (("x", 4), ("h", 4), ("c", 1)):
            self._norm(name, slots)
        self.reset_parameters()

    def project(self, x: Tensor) -> Tensor:
        """The input's part of the gates, with the second bias."""
        return self.normalized("x", super().project(x)) + self.bias

    def transition(self, x: StepInput, read: Tensor, state: States) -> States:
        """One step."""
        gates = x.x + self.normalized("h", F.linear(read, self.weight_hh))
        i, f, g, o = gates.chunk(4, dim=-1)
        c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * self.normalized("c", c).tanh(), c


class LayerNormGRUCell(LayerNormCell):
    r"""A GRU with layer normalisation of the products of its gates and of its candidate.

    .. math::

        (r, u) &= LN(W x + b; s_1, b_1) + LN(U h; s_3, b_3), \\
        n &= \tanh(LN(W' x + b'; s_2, b_2) + \sigma(r) \odot LN(U' h; s_4, b_4)), \\
        h_t &= \sigma(u) \odot h_{t-1} + (1 - \sigma(u)) \odot n.

    The gates r and u are normalised together if ``scope="all"``, the candidate n alone.

    >>> LayerNormGRUCell(2, 3)(torch.zeros(1, 2)).shape
    torch.Size([1, 3])
    """

    memory = False

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self._gates(3)
        for name, slots in (("x", 2), ("nx", 1), ("h", 2), ("nh", 1)):
            self._norm(name, slots)
        self.reset_parameters()

    def project(self, x: Tensor) -> Tensor:
        """The input's part of the gates and of the candidate."""
        gates, n = self._split(super().project(x))
        return torch.cat([self.normalized("x", gates), self.normalized("nx", n)], dim=-1)

    def transition(self, x: StepInput, read: Tensor, state: States) -> States:
        """One step."""
        gates_x, n_x = self._split(x.x)
        gates_h, n_h = self._split(F.linear(read, self.weight_hh))
        r, u = (gates_x + self.normalized("h", gates_h)).sigmoid().chunk(2, dim=-1)
        n = (n_x + r * self.normalized("nh", n_h)).tanh()
        return (n + u * (state[0] - n),)

    def _split(self, gates: Tensor) -> tuple[Tensor, Tensor]:
        """The part of r and u, and that of n."""
        H = self.hidden_size
        return gates[..., : 2 * H], gates[..., 2 * H :]
