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

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from noisin._util import checks
from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.noise import Noise
from noisin.recurrent import drop_ins, functional
from noisin.recurrent.functional import ACTIVATIONS, Mode, Share, State, Step, Weights
from noisin.recurrent.injection import Injected, Injection, Site, setting, warn_of_growth
from noisin.recurrent.windows import step_inputs

Cell = Callable[..., State]


def hidden(cell: object, state: State) -> Tensor:
    """The hidden state h of a cell's state."""
    if _defines_hidden(cell):
        h = cell.hidden(state)  # type: ignore[attr-defined]
    else:
        h = state[0] if isinstance(state, tuple | list) and state else state
    if not isinstance(h, Tensor):
        raise InvalidType(
            f"{type(cell).__name__}: expected a state that is a tensor or a tuple that starts with "
            f"one, got {type(state).__name__}. Define methods "
            f"hidden(state) and with_hidden(state, z) on the cell."
        )
    return h


def _defines_hidden(cell: object) -> bool:
    """Whether the cell's class has the two methods; an attribute such as a layer does not count."""
    found = [callable(getattr(type(cell), name, None)) for name in ("hidden", "with_hidden")]
    if any(found) and not all(found):
        raise InvalidType(
            f"{type(cell).__name__}: has one of the methods hidden(state) and "
            f"with_hidden(state, z), and needs both or neither."
        )
    return all(found)


def with_hidden(cell: object, state: State, z: Tensor) -> State:
    """A cell's state with z in place of its hidden state."""
    if _defines_hidden(cell):
        return cell.with_hidden(state, z)  # type: ignore[attr-defined]
    if isinstance(state, Tensor):
        return z
    if hasattr(state, "_replace"):  # a named tuple
        return state._replace(**{state._fields[0]: z})
    return type(state)((z, *state[1:]))


class NoisyCell(Injected):
    """A cell that injects noise into the hidden state of its clean ``transition``."""

    def transition(self, x: Tensor, state: State = None) -> State:
        """The clean transition ``f_W``."""
        raise NotImplementedError

    def forward(self, x: Tensor, state: State = None, *, eps: Tensor | None = None) -> State:
        """One step ``g_W(x, state, eps)``; eps is the caller's own noise, of the shape of h."""
        if drop_ins.is_symbolic(x, state):
            return drop_ins.symbolic_call(self, x, state, eps=eps)
        if eps is None and not self._noise_acts():
            return self.transition(x, state)
        if not self.feedback or (self.share == "sequence" and eps is None):
            setting = "feedback=False" if not self.feedback else "share='sequence'"
            raise Unsupported(
                f"{type(self).__name__}: a single step cannot keep to {setting}, which is about "
                f"the whole sequence. Run the cell with noisin.unroll(cell, x)."
            )
        state = self.transition(x, state)
        h = hidden(self, state)
        if eps is None:
            eps = self._drawn(h)
        else:
            self._check_given(h, eps)
        return with_hidden(self, state, functional.inject(h, eps.to(h), self.noise_mode))

    def _drawn(self, h: Tensor) -> Tensor:
        assert self.noise is not None and not isinstance(self.noise, tuple)  # noqa: PT018
        return self._draw(self.noise, h.shape, h)

    def _check_given(self, h: Tensor, eps: Tensor) -> None:
        name = type(self).__name__
        checks.require_noise_tensor(name, eps, h)
        if eps.shape != h.shape:
            raise InvalidValue(
                f"{name}: expected eps of the shape {tuple(h.shape)} of h, got {tuple(eps.shape)}."
            )
        checks.require_finite(name, eps)

    def _clean_step(self, x: Tensor, state: State) -> State:
        """The clean transition by way of ``__call__``, so that hooks run."""
        before, self._noise_switch = self._noise_switch, False
        try:
            return self(x, state)
        finally:
            self._noise_switch = before


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
    >>> cell = Noisy(nn.LSTMCell(2, 3), noise.Gamma(0.4, alpha=2.0))
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


class _TorchCell(NoisyCell, nn.RNNCellBase):
    """One of torch's cells with noise."""

    # Not by way of `nn`, where somebody may have put our class in place of torch's.
    _torch_class: ClassVar[type[nn.RNNCellBase]]
    _torch_arguments: ClassVar[drop_ins.Kinds] = drop_ins.CELL_ARGUMENTS

    def __init__(
        self,
        *args: Any,
        noise: Noise | None = None,
        mode: Mode = "multiplicative",
        feedback: bool = True,
        share: Share = "step",
        generator: Generator | None = None,
        **kwargs: Any,
    ) -> None:
        name = type(self).__name__
        drop_ins.torch_arguments(name, self._torch_arguments, args, kwargs)
        super().__init__(*args, **kwargs)
        self._configure(
            Injection(noise, mode, feedback, share=share, generator=generator, owner=name)
        )

    def extra_repr(self) -> str:
        """Torch's own line and the noise."""
        return f"{super().extra_repr()}, {self._noise_repr()}"

    @property
    def _weights(self) -> Weights:
        return Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)


class ElmanCell(nn.RNNCell):
    """``torch.nn.RNNCell``, whose ``nonlinearity`` may also be ``"sigmoid"``."""

    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        """``h = s(W_x x + W_h h_prev)``."""
        drop_ins.torch_cell(self, x, state)
        if self.nonlinearity != "sigmoid":
            return super().forward(x, state)
        w = Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        h = x.new_zeros(*x.shape[:-1], self.hidden_size) if state is None else state
        drop_ins.cell_step(self, x, h)
        return functional.elman(w.project(x), (h,), w, "sigmoid")[0]


class RNNCell(_TorchCell, ElmanCell):
    """``torch.nn.RNNCell`` with noise; ``nonlinearity`` may also be ``"sigmoid"``."""

    _torch_class = nn.RNNCell
    _torch_arguments = drop_ins.with_nonlinearity(drop_ins.CELL_ARGUMENTS)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        checks.one_of("RNNCell: nonlinearity", self.nonlinearity, tuple(ACTIVATIONS))

    def transition(self, x: Tensor, state: State = None) -> State:
        """``h = s(W_x x + W_h h_prev)``."""
        return ElmanCell.forward(self, x, state)


class LSTMCell(_TorchCell, nn.LSTMCell):
    """``torch.nn.LSTMCell`` with noise on the hidden state; the memory cell c stays clean."""

    _torch_class = nn.LSTMCell

    def transition(self, x: Tensor, state: State = None) -> State:
        """Torch's own step."""
        drop_ins.torch_cell(self, x, state)
        return self._torch_class.forward(self, x, state)


class GRUCell(_TorchCell, nn.GRUCell):
    """``torch.nn.GRUCell`` with noise.

    With ``site="state"``, the default, the state is torch's single tensor, and fed-back noise
    multiplies along the carry, which warns. With ``site="read"`` the state is the pair
    ``(z, h)``: gates and output read the noisy z, and the carry h stays clean. A single tensor
    is taken for both.
    """

    _torch_class = nn.GRUCell
    site: Site = setting("site")

    def __init__(self, *args: Any, site: Site = "state", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.site = site
        self._warn_of_risks()

    def _warn_of_risks(self) -> None:
        if self.site == "state":
            warn_of_growth(self, "use site='read', whose state is a pair")

    def extra_repr(self) -> str:
        """Torch's own line, the noise and its site."""
        return f"{super().extra_repr()}, site={self.site!r}"

    def transition(self, x: Tensor, state: State = None) -> State:
        """Torch's own step, or the one with a separate carry."""
        if self.site == "state":
            drop_ins.torch_cell(self, x, state)
            return self._torch_class.forward(self, x, state)
        checks.require_tensors("GRUCell", x=x)
        if state is None:
            state = x.new_zeros(*x.shape[:-1], self.hidden_size)
        pair = state if isinstance(state, tuple | list) else (state, state)
        if len(pair) != 2:
            raise InvalidValue(
                f"GRUCell: with site='read' a state is a pair (z, h) or one tensor for both, got "
                f"{len(pair)} parts."
            )
        drop_ins.cell_step(self, x, *pair)
        return functional.gru(self._weights.project(x), tuple(pair), self._weights)


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
    step = sequence_step(cell, eps)
    zs = []
    for t, x_t in enumerate(step_inputs(cell, x)):
        z, state = step(t, x_t, state)
        zs.append(z)
    return torch.stack(zs), state


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
