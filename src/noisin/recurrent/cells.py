"""Any transition function as a cell, noise around it, and the loop over time.

A cell is ``(x, state) -> state``; a state of None is the initial one. Its hidden state ``h`` is the
tensor, or the first of the tuple, unless the cell defines methods ``hidden(state) -> h``
and ``with_hidden(state, z) -> state``. :class:`Noisy` wraps any cell into the noise-injected one,
``g_W = f_W * (1 + eps)``, and :func:`unroll` runs a cell over time. What a cell computes once for
all steps is described in :mod:`noisin.recurrent.windows`.

:class:`RNNCell`, :class:`LSTMCell` and :class:`GRUCell` are torch's cells with noise: the same
signature, parameters and ``state_dict`` keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from noisin._util import checks
from noisin.errors import InvalidValue
from noisin.noise import Noise
from noisin.recurrent import drop_ins, functional
from noisin.recurrent.functional import Mode, Share, State, Step
from noisin.recurrent.injection import Injection, warn_of_growth
from noisin.recurrent.noisy_cell import Cell as Cell
from noisin.recurrent.noisy_cell import NoisyCell as NoisyCell
from noisin.recurrent.noisy_cell import hidden as hidden
from noisin.recurrent.noisy_cell import with_hidden as with_hidden
from noisin.recurrent.torch_cells import ElmanCell as ElmanCell
from noisin.recurrent.torch_cells import GRUCell as GRUCell
from noisin.recurrent.torch_cells import LSTMCell as LSTMCell
from noisin.recurrent.torch_cells import RNNCell as RNNCell
from noisin.recurrent.windows import at_once, step_inputs


class Noisy(NoisyCell):
    """Any cell with noise on its hidden state: the equation ``g_W = f_W * (1 + eps)``.

    Args:
        cell: torch's cells, ours, or any ``(x, state) -> state``.
        noise: a noise, or None.
        mode: ``"multiplicative"`` or ``"additive"``.
        feedback: whether the noisy z or the clean h is carried to the next step by ``unroll``.
        share: a fresh draw per ``"step"`` or one per ``"sequence"``, in ``unroll``.
        generator: the random stream to draw from; None is torch's global one.

    A cell that copies its state along, such as a GRU, zoneout or a highway, multiplies noise along
    that copy: keep the noise small, or choose a cell with a separate carry.

    >>> from noisin import noise
    >>> cell = Noisy(torch.nn.LSTMCell(2, 3), noise.Gamma(0.4, alpha=2.0))
    >>> z, (z_n, c_n) = unroll(cell, torch.zeros(5, 1, 2))
    >>> z.shape
    torch.Size([5, 1, 3])
    """

    def __init__(
        self,
        cell: Cell,
        noise: Noise | None,
        *,
        mode: Mode = "multiplicative",
        feedback: bool = True,
        share: Share = "step",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        checks.require_cell("Noisy", cell)
        self._configure(
            Injection(noise, mode, feedback, share=share, generator=generator, owner="Noisy")
        )
        self.cell = cell
        self._warn_of_risks()

    def _warn_of_risks(self) -> None:
        if (
            isinstance(self.cell, GRUCell._torch_class)
            and getattr(self.cell, "site", "state") == "state"
        ):
            warn_of_growth(self, "wrap noisin.GRUCell(..., site='read')")

    def transition(self, x: Tensor, state: State = None) -> State:
        """The wrapped cell."""
        drop_ins.known_cell(self.cell, x, state)
        return self.cell(x, state)

    def step_inputs(self, x: Tensor) -> Sequence[Any]:
        """What the wrapped cell takes at each step of a window."""
        return step_inputs(self.cell, x)

    def hidden(self, state: State) -> Tensor:
        """The hidden state, as the wrapped cell has it."""
        return hidden(self.cell, state)

    def with_hidden(self, state: State, z: Tensor) -> State:
        """The state with another hidden state, as the wrapped cell has it."""
        return with_hidden(self.cell, state, z)

    def extra_repr(self) -> str:
        """The noise."""
        return self._noise_repr()


def unroll(
    cell: Cell, x: Tensor, state: State = None, *, eps: Tensor | None = None
) -> tuple[Tensor, State]:
    """Run a cell over time: ``(T, N, F)`` to all z, ``(T, N, H)``, and the carried state.

    A noisy cell emits its noisy z, and carries it on, or the clean h where its ``feedback`` is off.
    ``eps``, ``(T, N, H)``, is the caller's own noise for it, applied whenever given.
    """
    if not isinstance(cell, NoisyCell):
        checks.require_cell("unroll", cell)
    drop_ins.steps_input("unroll", x)
    if getattr(cell, "site", "state") == "state":  # the other site has another state
        known = (*drop_ins.TORCH_CELLS, RNNCell, LSTMCell, GRUCell)
        drop_ins.known_cell(cell, x[0], state, known)
    if eps is not None and not isinstance(cell, NoisyCell):
        raise InvalidValue(
            f"unroll: eps is given, but {type(cell).__name__} injects no noise. "
            f"Wrap it: noisin.Noisy(cell, None)."
        )
    if eps is not None:
        checks.require_noise_tensor("unroll", eps)
    if eps is not None and eps.shape[:1] != x.shape[:1]:
        raise InvalidValue(
            f"unroll: expected eps for the {len(x)} steps of x, (T, N, H), got {tuple(eps.shape)}."
        )
    found = _at_once(cell, x, state, eps)
    return step_by_step(cell, x, state, eps) if found is None else found


def step_by_step(
    cell: Cell, x: Tensor, state: State = None, eps: Tensor | None = None
) -> tuple[Tensor, State]:
    """What :func:`unroll` computes, by a call of the cell for each step."""
    step = sequence_step(cell, eps)
    zs = []
    for t, x_t in enumerate(step_inputs(cell, x)):
        z, state = step(t, x_t, state)
        zs.append(z)
    return torch.stack(zs), state


def _at_once(
    cell: Cell, x: Tensor, state: State, eps: Tensor | None
) -> tuple[Tensor, State] | None:
    """The same by the kernels, for a cell of which they compute all steps, with noise or not."""
    noisy = cell if type(cell) is Noisy else None  # the step of a subclass may be another
    inner: Any = cell if noisy is None else noisy.cell
    run = at_once(inner, x, *([] if noisy is None else [noisy]))
    if run is None:
        return None
    like = x.new_empty(*x.shape[:2], inner.hidden_size)
    if noisy is None or (eps is None and not noisy._noise_acts()):
        return run(state, torch.zeros_like(like), "additive")
    if eps is None:
        eps = noisy._drawn_at_once(like)
    else:
        noisy._check_given(like, eps)
    eps = eps.to(like)
    if noisy.feedback:
        return run(state, eps, noisy.noise_mode)
    h, state = run(state, torch.zeros_like(like), "additive")
    return functional.inject(h, eps, noisy.noise_mode), state


def sequence_step(cell: Cell, eps: Tensor | None = None) -> Step:
    """A step ``(t, x, state) -> (z, state)`` of one sequence, for a loop whose inputs depend on z.

    As in :func:`unroll`, what is carried is z, or the clean h where ``feedback`` is off, and noise
    that is shared is drawn once. Take a new one for every sequence.
    """
    if isinstance(cell, NoisyCell) and (eps is not None or cell._noise_acts()):
        return _noisy_step(cell, eps)
    return _clean_step(cell)


def _clean_step(cell: Cell) -> Step:
    def step(_: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        state = cell(x, state)
        return hidden(cell, state), state

    return step


def _noisy_step(cell: NoisyCell, eps: Tensor | None) -> Step:
    shared: Tensor | None = None

    def noise(t: int, h: Tensor) -> Tensor:
        nonlocal shared
        if eps is not None:
            cell._check_given(h, eps[t])
            return eps[t]
        if cell.share == "step":
            return cell._drawn(h)
        if shared is None:
            shared = cell._drawn(h)
        return shared

    def step(t: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        state = cell._clean_step(x, state)
        h = hidden(cell, state)
        z = functional.inject(h, noise(t, h).to(h), cell.noise_mode)
        return z, with_hidden(cell, state, z) if cell.feedback else state

    return step
