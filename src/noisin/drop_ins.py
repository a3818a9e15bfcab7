"""What torch's RNNs and cells take, for the modules that take the same; all else is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn.utils.rnn import PackedSequence

from noisin import arguments
from noisin.checks import require_tensors, state_parts
from noisin.errors import InvalidType, InvalidValue

TORCH_CELLS = (nn.RNNCell, nn.LSTMCell, nn.GRUCell)

# What torch's constructors take, in order. It checks values, and only some types, in clear words.
Kinds = Mapping[str, tuple[Any, str]]
_SIZE = "a whole number"
CELL_ARGUMENTS: Kinds = {
    "input_size": (Integral, _SIZE),
    "hidden_size": (Integral, _SIZE),
    "bias": (int, "True or False"),
    "device": (str | int | torch.device | None, "a torch.device or its name"),
    "dtype": (torch.dtype | None, "a torch.dtype, such as torch.float32"),
}
STACK_ARGUMENTS: Kinds = {
    "input_size": (int, _SIZE),
    "hidden_size": (int, _SIZE),
    "num_layers": (Integral, _SIZE),
    "bias": (bool, "True or False"),
    "batch_first": (bool, "True or False"),
    "dropout": (Real, "a number"),
    "bidirectional": (bool, "True or False"),
    "proj_size": (Integral, _SIZE),
    "device": CELL_ARGUMENTS["device"],
    "dtype": CELL_ARGUMENTS["dtype"],
}
_FLAGS = ("bias", "batch_first", "bidirectional")


def with_nonlinearity(kinds: Kinds) -> Kinds:
    """The arguments of torch's RNN or RNNCell, whose fourth is the nonlinearity."""
    items = list(kinds.items())
    return dict([*items[:3], ("nonlinearity", (str, "a string")), *items[3:]])


def torch_arguments(name: str, kinds: Kinds, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise unless what torch's constructor will get is of the right kinds."""
    for argument, value in (*zip(kinds, args, strict=False), *kwargs.items()):
        kind, expected = kinds.get(argument, (object, ""))
        flag = isinstance(value, bool) and argument not in _FLAGS
        if not isinstance(value, kind) or (flag and kind is not object):
            raise InvalidType(f"{name}: {argument} must be {expected}, got {value!r:.60}.")
        if isinstance(value, int | float) and value > arguments.LARGEST:
            raise InvalidValue(f"{name}: {argument} must be below 2⁶³, got {value!r:.60}.")


def sequence_input(name: str, input: object) -> None:
    """Raise unless ``input`` is a dense tensor or a PackedSequence of one."""
    values = input.data if isinstance(input, PackedSequence) else input
    if not isinstance(values, Tensor | Proxy):
        raise InvalidType(
            f"{name}: expected a tensor or a PackedSequence, got {type(input).__name__}. "
            f"Convert it with torch.as_tensor."
        )
    require_tensors(name, input=values)


def torch_cell(cell: nn.RNNCellBase, x: Any, state: object) -> tuple[Tensor, ...]:
    """The tensors of a state of one of torch's cells, or raise; the cell itself checks shapes."""
    parts: tuple[Tensor, ...] = ()
    if state is not None:
        count = 2 if isinstance(cell, nn.LSTMCell) else 1
        parts = state_parts(type(cell).__name__, state, count)
    cell_input(cell, x, *parts)
    return parts


def known_cell(
    cell: object, x: Any, state: object, kinds: tuple[type[nn.RNNCellBase], ...] = TORCH_CELLS
) -> None:
    """Raise where a wrapper or a loop is about to give a cell of these kinds wrong values."""
    if isinstance(cell, nn.RNNCellBase) and type(cell) in kinds:
        cell_step(cell, x, *torch_cell(cell, x, state))


def cell_step(cell: nn.RNNCellBase, x: Any, *states: object) -> None:
    """Raise unless x and the states have the kind and the shapes that a cell takes."""
    cell_state(cell, x, *states)
    if x.shape[-1] != cell.input_size:
        raise InvalidValue(
            f"{type(cell).__name__}: expected x with {cell.input_size} features, its input_size, "
            f"got {tuple(x.shape)}."
        )


def cell_state(cell: nn.RNNCellBase, x: Tensor, *states: object) -> None:
    """Raise unless x is ``(N, F)`` or ``(F,)`` and each state is ``(N, H)`` or ``(H,)``."""
    name = type(cell).__name__
    cell_input(cell, x, *states)
    if x.dim() not in (1, 2):
        raise InvalidValue(
            f"{name}: a cell takes one step, x of shape (N, F) or (F,), got {tuple(x.shape)}. "
            f"Run a sequence with noisin.unroll(cell, x)."
        )
    for state in states:
        expected = (*x.shape[:-1], cell.hidden_size)
        if not isinstance(state, Tensor) or state.shape != expected:
            got = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
            raise InvalidValue(
                f"{name}: expected a state of shape {expected}, got {got}. Pass the state of the "
                f"same batch, or None for zeros."
            )


def cell_input(cell: nn.Module, x: object, *states: object) -> None:
    """Raise unless x is a tensor and, as the states, of the kind of the cell's weights."""
    name = type(cell).__name__
    require_tensors(name, x=x)
    weight = cell._parameters.get("weight_ih")  # none of its own while it is parametrized
    for what, value in (("x", x), *(("state", state) for state in states)):
        if not isinstance(value, Tensor):
            continue
        require_tensors(name, **{what: value})
        if weight is None:
            continue
        if value.dtype != weight.dtype and not torch._C._is_any_autocast_enabled():
            raise InvalidType(
                f"{name}: {what} must be of {weight.dtype}, as the weights, got {value.dtype}. "
                f"Convert it: {what}.to({weight.dtype})."
            )
        if value.device != weight.device:
            raise InvalidValue(
                f"{name}: {what} must be on {weight.device}, as the weights, got {value.device}. "
                f"Move it: {what}.to({str(weight.device)!r})."
            )
