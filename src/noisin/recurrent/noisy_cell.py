"""What all cells with noise have in common: a hidden state, and noise on it in each step."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from noisin._util import checks
from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.recurrent import drop_ins, functional
from noisin.recurrent.functional import State
from noisin.recurrent.injection import Injected

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

    def _drawn_at_once(self, h: Tensor) -> Tensor:
        """Noise for the h of all steps, ``(T, N, H)``: fresh at each, or that of the first."""
        return self._drawn(h if self.share == "step" else h[0]).expand_as(h)

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
        before, self.injection = self.injection, self.injection.with_unchecked_noise(None)
        try:
            return self(x, state)
        finally:
            self.injection = before
