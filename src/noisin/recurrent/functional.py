r"""Transition functions, the injection of noise, and the loop over time, in plain torch.

Together they are Algorithm 1 of the paper: at every step compute the clean state
``h_t = f_W(x_{t-1}, z_{t-1})``, draw ``eps_t`` and emit ``z_t = h_t * (1 + eps_t)``. This is the
reference that every faster implementation must reproduce.

A transition is a function ``(x, state) -> state`` whose state is a tuple that starts with the
hidden state, which noise is injected into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

Mode = Literal["multiplicative", "additive"]
Share = Literal["step", "sequence"]
States = tuple[Tensor, ...]
State = Any  # a tuple of tensors, or the state of a user's cell
Step = Callable[[int, Tensor, State], tuple[Tensor, State]]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
}


class Weights(NamedTuple):
    """The weights of one layer in one direction, as torch lays them out."""

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None = None
    b_hh: Tensor | None = None
    w_hr: Tensor | None = None

    def to(self, dtype: torch.dtype) -> Weights:
        """The same weights in another precision, differentiably."""
        return Weights(*[None if w is None else w.to(dtype) for w in self])  # type: ignore[arg-type]

    def project(self, x: Tensor) -> Tensor:
        """The input's part of the gates, ``W_x x + b``: one product for all steps."""
        return _products(x, self.w_ih, self.b_ih)

    def recur(self, h: Tensor) -> Tensor:
        """The hidden state's part of the gates, ``W_h h + b``."""
        return _products(h, self.w_hh, self.b_hh)


def _products(v: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """``W v + b`` of all gates, of which each may read a vector of its own, ``(N, R, ·)``."""
    if v.dim() < 3:
        return F.linear(v, w, b)
    product = torch.einsum("nri,rhi->nrh", v, w.view(v.shape[1], -1, v.shape[2])).flatten(1)
    return product if b is None else product + b


class Factors(NamedTuple):
    """Factors on a transition, at all steps or at one; None where there is none.

    ``keep_h`` and ``keep_c`` are how much of the state before is kept (zoneout): with k in
    [0, 1], ``k h_{t-1} + (1 - k) h_t``. ``update`` is on what a memory adds.
    """

    keep_h: Tensor | None = None
    keep_c: Tensor | None = None
    update: Tensor | None = None

    @property
    def given(self) -> list[Tensor]:
        """Those that there are."""
        return [factor for factor in self if factor is not None]

    def map(self, function: Callable[[Tensor], Tensor]) -> Factors:
        """A function of each."""
        return Factors(*[None if factor is None else function(factor) for factor in self])

    def steps(self, sizes: list[int]) -> list[Factors]:
        """Those of each step, of so many rows."""
        parts = ([None] * len(sizes) if k is None else torch.split(k, sizes) for k in self)
        return [Factors(*step) for step in zip(*parts, strict=True)]

    def at(self, rows: slice) -> Factors:
        """Those of some rows."""
        return self.map(lambda factor: factor[rows])

    def apply(self, transition: Callable[..., States], x: Tensor, state: States) -> States:
        """The transition with the factor on its update, if there is one."""
        if self.update is None:
            return transition(x, state)
        return transition(x, state, update=self.update.to(x.dtype))

    def hold(self, old: States, new: States, memory: bool) -> States:
        """The new state, some of it undone.

        Without a memory c beside h, the state is one value, and the last of its tensors carries it.
        """
        keep_h, keep_c, _ = self.map(lambda factor: factor.to(new[0].dtype))
        h = new[0] if keep_h is None else torch.lerp(new[0], old[0 if memory else -1], keep_h)
        if not memory:
            return (h,) * len(new)
        return h, new[1] if keep_c is None else torch.lerp(new[1], old[1], keep_c)


def elman(gates_x: Tensor, state: States, w: Weights, activation: str) -> States:
    """``h = s(W_x x + W_h z)``, with ``gates_x`` the input's part; the state is ``(z,)``."""
    (z,) = state
    return (ACTIVATIONS[activation](gates_x + w.recur(z)),)


def lstm(gates_x: Tensor, state: States, w: Weights, update: Tensor | None = None) -> States:
    """``c = f c + i g``, ``h = o tanh(c)``, the gates reading z; the state is ``(z, c)``.

    With a factor m on the update, ``c = f c + m i g``.
    """
    z, c = state
    i, f, g, o = (gates_x + w.recur(z)).chunk(4, dim=-1)
    added = i.sigmoid() * g.tanh()
    c = f.sigmoid() * c + (added if update is None else added * update)
    h = o.sigmoid() * c.tanh()
    return (h if w.w_hr is None else F.linear(h, w.w_hr)), c


def gru(gates_x: Tensor, state: States, w: Weights, update: Tensor | None = None) -> States:
    """``h = (1 - u) n + u h_prev``, the gates r, u, n reading z.

    The state is ``(z, h)``: gates read the noisy z and the carry h stays clean. With the state
    ``(z,)`` the carry is z itself, the literal equation of the paper. With a factor m on the
    update, ``h = (1 - u) m n + u h_prev``.
    """
    z, carry = state[0], state[-1]
    r_x, u_x, n_x = gates_x.chunk(3, dim=-1)
    r_h, u_h, n_h = w.recur(z).chunk(3, dim=-1)
    r, u = (r_x + r_h).sigmoid(), (u_x + u_h).sigmoid()
    n = (n_x + r * n_h).tanh()
    n = n if update is None else n * update
    h = (carry - n) * u + n
    return (h,) * len(state)


def inject(h: Tensor, eps: Tensor, mode: Mode) -> Tensor:
    """Inject centred noise: ``h + eps`` or ``h * (1 + eps)``.

    >>> inject(torch.tensor([2.0, 2.0]), torch.tensor([-1.0, 0.5]), "multiplicative")
    tensor([0., 3.])
    """
    return h + eps if mode == "additive" else h * (1 + eps)


def masked(z: Tensor, mask: Tensor) -> Tensor:
    """What gates read of rows ``(N, Z)``: the same, or ``(N, R, Z)`` with a mask for each gate."""
    if mask.shape == z.shape:
        return z * mask
    return z.unsqueeze(1) * mask.view(len(z), -1, z.shape[1])


def noisy(
    transition: Callable[..., States],
    eps: Sequence[Tensor],
    mode: Mode,
    masks: Sequence[Tensor] | None = None,
    factors: Sequence[Factors] | None = None,
    memory: bool = False,
) -> Step:
    """The noise-injected step ``g_W`` of Algorithm 1: ``z_t`` is emitted and carried on.

    With masks, the transition reads ``z_{t-1} * m_t``; the rest of the state stays whole, and so
    does what the factors keep of z. A mask of several times the units of z is one for each gate.
    """

    def step(t: int, x: Tensor, state: States) -> tuple[Tensor, States]:
        read = state if masks is None else (masked(state[0], masks[t]), *state[1:])
        if factors is None:
            new = transition(x, read)
        else:
            new = factors[t].hold(state, factors[t].apply(transition, x, read), memory)
        h, *rest = new
        z = inject(h, eps[t].to(h.dtype), mode)  # autocast decides the dtype of h
        return z, (z, *rest)

    return step


def scan(
    step: Step, xs: Sequence[Tensor], state: State, reverse: bool = False
) -> tuple[list[Tensor], State]:
    """Run ``step(t, x_t, state) -> (z_t, state)`` over time: all z, in time order, and the state.

    Rows may end early: ``xs[t]`` then has the first rows only, as in a PackedSequence. The other
    rows keep their state, which is final when time runs forward and initial when it runs backward.
    """
    N = len(xs[0])
    order = range(len(xs))
    zs: dict[int, Tensor] = {}
    for t in reversed(order) if reverse else order:
        n = len(xs[t])
        if n == N:
            zs[t], state = step(t, xs[t], state)
        else:
            zs[t], active = step(t, xs[t], tuple(s[:n] for s in state))
            state = tuple(
                torch.cat([a, s[n:].to(a.dtype)]) for a, s in zip(active, state, strict=True)
            )
    return [zs[t] for t in order], state
