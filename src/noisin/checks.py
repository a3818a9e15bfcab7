"""Checks of what a caller hands over, at the boundary. The rest of the library trusts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from noisin.errors import InvalidType, InvalidValue
from noisin.layout import Layout
from noisin.wording import shown


def one_of(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise unless ``value`` is one of ``choices``.

    >>> one_of("LSTM: mode", "sum", ("additive", "multiplicative"))
    Traceback (most recent call last):
    noisin.errors.InvalidValue: LSTM: mode must be 'additive' or 'multiplicative', got 'sum'.
    """
    if not any(
        value is choice or (isinstance(value, str) and value == choice) for choice in choices
    ):
        expected = " or ".join(repr(choice) for choice in choices)
        raise InvalidValue(f"{name} must be {expected}, got {shown(value)}.")


def require_tensors(where: str, **tensors: object) -> None:
    """Raise unless all arguments are tensors."""
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise InvalidType(
                f"{where}: {name} must be a tensor, got {type(value).__name__}. "
                f"Convert it with torch.as_tensor({name})."
            )


def require_cell(where: str, cell: object) -> None:
    """Raise unless ``cell`` can be called as ``(x, state) -> state``."""
    if isinstance(cell, type) or not callable(cell):
        raise InvalidType(
            f"{where}: expected a cell (x, state) -> state, got {shown(cell)}. "
            f"Pass an instance, such as torch.nn.LSTMCell(16, 16)."
        )
    if isinstance(cell, nn.RNNBase):
        name = type(cell).__name__
        raise InvalidType(
            f"{where}: expected a cell, got {name}, which runs whole sequences. Call it as it is; "
            f"for noise, use noisin.{name}(..., noise=noise) or noisin.convert."
        )


def require_module(where: str, model: object) -> None:
    """Raise unless ``model`` is a module."""
    if not isinstance(model, nn.Module):
        raise InvalidType(
            f"{where}: expected a model, a torch.nn.Module, got {type(model).__name__}. "
            f"The model is the first argument."
        )


def require_noise_tensor(name: str, eps: object) -> None:
    """Raise unless ``eps`` is a tensor that can hold noise."""
    if not isinstance(eps, Tensor) or not eps.is_floating_point():
        got = f"a tensor of {eps.dtype}" if isinstance(eps, Tensor) else type(eps).__name__
        raise InvalidType(
            f"{name}: eps must be a floating-point tensor of centred noise, got {got}."
        )


def cell_state(name: str, x: Tensor, hidden_size: int, *states: object) -> None:
    """Raise unless x is ``(N, F)`` or ``(F,)`` and each state is ``(N, H)`` or ``(H,)``."""
    if x.dim() not in (1, 2):
        raise InvalidValue(
            f"{name}: a cell takes one step, x of shape (N, F) or (F,), got {tuple(x.shape)}. "
            f"Run a sequence with noisin.unroll(cell, x)."
        )
    for state in states:
        expected = (*x.shape[:-1], hidden_size)
        if not isinstance(state, Tensor) or state.shape != expected:
            got = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
            raise InvalidValue(
                f"{name}: expected a state of shape {expected}, got {got}. Pass the state of the "
                f"same batch, or None for zeros."
            )


def values_known(x: Tensor) -> bool:
    """Whether Python may look at values: not while a function is traced or transformed."""
    if torch.compiler.is_compiling():  # first, for the compiler cannot trace the question below
        return False
    return not (x.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(x))


def initial_state(
    name: str, hx: Any, layout: Layout, layers: int, sizes: Sequence[int], like: Tensor
) -> tuple[Tensor, ...]:
    """A caller's initial state as a tuple of ``(layers, N, size)``, longest sequence first."""
    parts = hx if len(sizes) > 1 else (hx,)
    if (
        not isinstance(parts, tuple | list)
        or len(parts) != len(sizes)
        or not all(isinstance(part, Tensor) for part in parts)
    ):
        expected = "a tensor h_0" if len(sizes) == 1 else "a tuple (h_0, c_0) of tensors"
        raise InvalidType(
            f"{name}: the initial state must be {expected}, got {type(hx).__name__}. "
            f"Pass what a previous call returned, or None for zeros."
        )
    for part, size in zip(parts, sizes, strict=True):
        shape = (layers, layout.N, size) if layout.batched else (layers, size)
        if part.shape != shape:
            raise InvalidValue(
                f"{name}: expected an initial state of shape {shape}, got {tuple(part.shape)}. "
                f"It is (num_layers · num_directions, N, size), without N for unbatched input. "
                f"Pass the state of the same batch, or None for zeros."
            )
        if part.dtype != like.dtype and not torch._C._is_any_autocast_enabled():
            raise InvalidType(
                f"{name}: expected an initial state of {like.dtype}, as the input, got "
                f"{part.dtype}. Convert it: hx.to({like.dtype})."
            )
    return tuple(layout.enter_state(part) for part in parts)


def given_noise(
    name: str, eps: Tensor, layout: Layout, layers: int, size: int, used: Sequence[int]
) -> Tensor:
    """A caller's noise, ``(layers, *lead, size)``, finite in the layers that are used."""
    require_noise_tensor(name, eps)
    batch = (layout.N,) if layout.batched else ()
    expected = (layers, layout.T, *batch, size)
    if eps.shape != expected:
        raise InvalidValue(
            f"{name}: expected eps of shape {expected}, got {tuple(eps.shape)}. It is "
            f"(num_layers · num_directions, T, N, H_out), whatever batch_first is, without N for "
            f"unbatched input."
        )
    entered = layout.enter_steps(eps)
    for layer in used:
        require_finite(name, entered[layer])
    return entered


def require_finite(name: str, eps: Tensor) -> None:
    """Raise where noise that will be used holds NaN or infinity."""
    if values_known(eps) and not eps.isfinite().all():
        raise InvalidValue(
            f"{name}: eps holds NaN or infinity at steps that are used. Pass finite noise."
        )
