"""Zoneout (Krueger et al., 2017): units that keep their previous value at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from noisin._util import arguments, checks
from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.noise import Bernoulli
from noisin.noise.sampling import Stochastic
from noisin.recurrent import drop_ins
from noisin.recurrent.cells import Cell, GRUCell
from noisin.recurrent.functional import State
from noisin.recurrent.windows import step_inputs
from noisin.regularizers.cells import check_rate
from noisin.regularizers.windowed import WindowCell


class ZoneoutMasks(Stochastic):
    r"""The factors of zoneout for all steps: what noisin's RNN, LSTM and GRU take as ``keep``.

    While training they are masks ``m ~ Bernoulli(p)``, in ``eval()`` the rates themselves. A layer
    with them computes what a loop over ``Noisy(Zoneout(cell))`` does, at the speed of the kernels.

    Args:
        p_h: the probability that a unit of h keeps its value.
        p_c: the probability that a unit of c does; zero for a cell without one.
        generator: the random stream to draw from; None is torch's global one.

    >>> import noisin
    >>> x, lstm, zoneout = torch.zeros(5, 1, 2), noisin.LSTM(2, 3), ZoneoutMasks(0.05, 0.5)
    >>> z, (z_n, c_n) = lstm(x, keep=zoneout(x, 3))
    >>> zoneout.eval()(x, 3)
    (0.05, 0.5)
    """

    def __init__(
        self, p_h: float = 0.0, p_c: float = 0.0, *, generator: Generator | None = None
    ) -> None:
        super().__init__()
        check_rate("Zoneout: p_h", p_h)
        check_rate("Zoneout: p_c", p_c)
        checks.require_generator("Zoneout", generator)
        self.p_h = p_h
        self.p_c = p_c
        self.generator = generator

    @property
    def acts(self) -> bool:
        """Whether anything is kept."""
        return self.p_h > 0 or self.p_c > 0

    @property
    def draws(self) -> bool:
        """Whether what is kept is random at present."""
        return self.training and self.acts

    def forward(self, like: Tensor, size: int) -> tuple[Tensor | float, Tensor | float]:
        """The pair for a layer of so many units that reads a sequence ``(T, N, ...)``."""
        checks.require_real("ZoneoutMasks", like=like)
        arguments.whole("ZoneoutMasks: size", size)
        if like.dim() < 2:
            raise InvalidValue(
                f"ZoneoutMasks: expected a sequence (T, N, ...), got {tuple(like.shape)}."
            )
        if not self.training:
            return self.p_h, self.p_c
        shape = (1, *like.shape[:2], size)
        return self._kept(self.p_h, shape, like), self._kept(self.p_c, shape, like)

    def _kept(self, p: float, shape: tuple[int, ...], like: Tensor) -> Tensor | float:
        # Bernoulli noise is -1 where dropout would drop, with probability p.
        return self._draw(Bernoulli(1 - p), shape, like).lt_(0) if p else 0.0

    def extra_repr(self) -> str:
        """The rates."""
        return f"p_h={self.p_h}, p_c={self.p_c}"


class Zoneout(Stochastic):
    r"""Any cell whose hidden state and memory keep, per unit, their previous value at random.

    While training, ``h_t = m h_{t-1} + (1 - m) h~_t`` with ``m ~ Bernoulli(p_h)``, and likewise c;
    in ``eval()`` m is replaced by its mean.

    Args:
        cell: ``(x, state) -> state``, with a tensor h or a pair (h, c) for its state.
        p_h: the probability that a unit of h keeps its value.
        p_c: the probability that a unit of c does; zero for a cell without one.
        generator: the random stream to draw from; None is torch's global one.

    Noise around zoneout, ``Noisy(Zoneout(...))``, multiplies along the values that are kept. Whole
    layers of noisin's RNN, LSTM and GRU run faster with :class:`ZoneoutMasks`.

    >>> cell = Zoneout(torch.nn.LSTMCell(2, 3), p_h=0.05, p_c=0.5)
    >>> h, c = cell(torch.zeros(1, 2))
    >>> h.shape
    torch.Size([1, 3])
    """

    def __init__(
        self,
        cell: Cell,
        p_h: float = 0.0,
        p_c: float = 0.0,
        *,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        check_rate("Zoneout: p_h", p_h)
        check_rate("Zoneout: p_c", p_c)
        checks.require_cell("Zoneout", cell)
        checks.require_generator("Zoneout", generator)
        if isinstance(cell, GRUCell) and cell.site == "read":
            raise Unsupported(
                "Zoneout: a GRUCell with site='read' has the pair (z, h) for its state, two forms "
                "of one value, which zoneout would keep or replace separately. Use site='state'."
            )
        self.cell = cell
        self.p_h = p_h
        self.p_c = p_c
        self.generator = generator

    @property
    def acts(self) -> bool:
        """Whether anything is kept."""
        return self.p_h > 0 or self.p_c > 0

    def forward(self, x: Tensor, state: State = None) -> State:
        """One step of the cell, of which some units are undone."""
        drop_ins.known_cell(self.cell, x, state)
        new = self.cell(x, state)
        if isinstance(new, Tensor):
            if self.p_c:
                raise InvalidValue(
                    f"Zoneout: p_c = {self.p_c} is for a memory c, and {type(self.cell).__name__} "
                    f"has none. Use p_h alone."
                )
            return self._keep(state, new, self.p_h)
        rates: tuple[float, ...] = (self.p_h, self.p_c)
        if isinstance(self.cell, WindowCell):  # a number of steps, beside h and c, is not kept
            rates += (0.0,) * (self.cell.parts - len(rates))
        if (
            not isinstance(new, tuple | list)
            or len(new) != len(rates)
            or not all(isinstance(part, Tensor) for part in new)
        ):
            kinds = [type(part).__name__ for part in new] if isinstance(new, tuple | list) else []
            raise InvalidValue(
                f"Zoneout: expected {type(self.cell).__name__} to return a state h or (h, c), got "
                f"{type(new).__name__}{f' of {len(kinds)}: {kinds}' if kinds else ''}."
            )
        old = (None,) * len(new) if state is None else state
        if not isinstance(old, tuple | list) or len(old) != len(new):
            raise InvalidType(
                f"Zoneout: expected a state (h, c), as {type(self.cell).__name__} returns, got "
                f"{type(state).__name__}. Pass what a previous call returned, or None."
            )
        kept = [self._keep(o, n, p) for o, n, p in zip(old, new, rates, strict=True)]
        return type(new)(*kept) if hasattr(new, "_fields") else tuple(kept)

    def step_inputs(self, x: Tensor) -> Sequence[Any]:
        """What the wrapped cell takes at each step of a window."""
        return step_inputs(self.cell, x)

    def _keep(self, old: Tensor | None, new: Tensor, p: float) -> Tensor:
        if p == 0:
            return new
        if old is None:
            old = torch.zeros_like(new)
        if not self.training:
            return torch.lerp(new, old, p)
        return torch.where(self._mask(p, new.shape, new) == 0, old, new)

    def extra_repr(self) -> str:
        """The rates."""
        return f"p_h={self.p_h}, p_c={self.p_c}"
