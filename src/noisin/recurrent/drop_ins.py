"""Validation of the arguments that modules share with torch's RNNs and cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn.utils.rnn import PackedSequence

from noisin._util import arguments, checks, torch_state
from noisin._util.checks import require_tensors, state_parts
from noisin.errors import InvalidDtype, InvalidTensor, InvalidType, InvalidValue
from noisin.recurrent.layout import Layout

TORCH_CELLS = (nn.RNNCell, nn.LSTMCell, nn.GRUCell)

# What torch's constructors take, in order. Where torch itself refuses a wrong type in clear words,
# any object passes, because a drop-in should raise the same error.
Kinds = Mapping[str, tuple[Any, str]]
_SIZE = (Integral, "a whole number")
_SIZES = ("input_size", "hidden_size")
_CHECKED = (object, "")
CELL_ARGUMENTS: Kinds = {
    "input_size": _SIZE,
    "hidden_size": _SIZE,
    "bias": _CHECKED,
    "device": (str | int | torch.device | None, "a torch.device or its name"),
    "dtype": (torch.dtype | None, "a torch.dtype, such as torch.float32"),
}
STACK_ARGUMENTS: Kinds = {
    "input_size": _CHECKED,
    "hidden_size": _CHECKED,
    "num_layers": _SIZE,
    "bias": _CHECKED,
    "batch_first": _CHECKED,
    "dropout": (Real, "a number"),
    "bidirectional": (bool, "True or False"),
    "proj_size": _SIZE,
    "device": CELL_ARGUMENTS["device"],
    "dtype": CELL_ARGUMENTS["dtype"],
}


def with_nonlinearity(kinds: Kinds) -> Kinds:
    """The arguments of torch's RNN or RNNCell, whose fourth is the nonlinearity."""
    items = list(kinds.items())
    return dict([*items[:3], ("nonlinearity", (str, "a string")), *items[3:]])


def torch_arguments(name: str, kinds: Kinds, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise unless what torch's constructor will get is of the right kinds."""
    for argument, value in (*zip(kinds, args, strict=False), *kwargs.items()):
        kind, expected = kinds.get(argument, _CHECKED)
        flag = isinstance(value, bool) and (kind not in (bool, object) or argument in _SIZES)
        if not isinstance(value, kind) or flag:
            expected = expected or _SIZE[1]
            raise InvalidType(f"{name}: {argument} must be {expected}, got {value!r:.60}.")
        if isinstance(value, int | float) and value > arguments.LARGEST:
            raise InvalidValue(f"{name}: {argument} must be below 2⁶³, got {value!r:.60}.")


def is_symbolic(x: object, state: object) -> bool:
    """Whether torch.fx traces the input of a module, or its state."""
    return isinstance(x, Proxy) or (state is not None and bool(_proxies(state)))


def _proxies(*values: object) -> list[Proxy]:
    parts = [p for v in values for p in (v if isinstance(v, tuple | list) else (v,))]
    return [part for part in parts if isinstance(part, Proxy)]


def symbolic_call(module: nn.Module, x: Any, state: Any, **given: Any) -> Any:
    """A node of torch.fx that calls the module as a whole, which is what torch's RNNs are to it."""
    tracer: Any = _proxies(x, state)[0].tracer
    arguments = {name: value for name, value in given.items() if value is not None}
    path = tracer.path_of_module(module)
    return tracer.create_proxy("call_module", path, (x, state), arguments)


def steps_input(name: str, x: Any) -> None:
    """Raise unless x is a tensor of steps: ``(T, N, F)``, or ``(T, F)`` without a batch."""
    require_tensors(name, x=x)
    if x.dim() not in (2, 3) or len(x) == 0:
        raise InvalidValue(
            f"{name}: expected x of shape (T, N, F), or (T, F) without a batch, with T > 0, got "
            f"{tuple(x.shape)}. Time comes first."
        )


def sequence_input(name: str, input: object) -> None:
    """Raise unless ``input`` is a dense tensor or a PackedSequence of one."""
    values = input.data if isinstance(input, PackedSequence) else input
    if not isinstance(values, Tensor):
        raise InvalidType(
            f"{name}: expected a tensor or a PackedSequence, got {type(input).__name__}. "
            f"Convert it with torch.as_tensor."
        )
    require_tensors(name, input=values)


def torch_cell(cell: nn.RNNCellBase, x: Any, state: object) -> tuple[Tensor, ...]:
    """The tensors of a state of one of torch's cells, or raise; the cell itself checks shapes."""
    parts: tuple[Tensor, ...] = ()
    if state is not None:
        parts = state_parts(type(cell).__name__, state, 2 if isinstance(cell, nn.LSTMCell) else 1)
    cell_input(cell, x, *parts)
    return parts


def known_cell(
    cell: object, x: Any, state: object, kinds: tuple[type[nn.RNNCellBase], ...] = TORCH_CELLS
) -> None:
    """Raise where a wrapper or a loop is about to give a cell of these kinds wrong values."""
    if isinstance(cell, nn.RNNCellBase) and type(cell) in kinds:
        cell_shapes(cell, x, *torch_cell(cell, x, state))


def cell_step(cell: Any, x: Any, *states: object) -> None:
    """Raise unless x and the states have the kind and the shapes that a cell takes."""
    cell_input(cell, x, *states)
    cell_shapes(cell, x, *states)


def cell_shapes(cell: Any, x: Tensor, *states: object) -> None:
    """Raise unless x is ``(N, F)`` or ``(F,)`` and each state is ``(N, H)`` or ``(H,)``."""
    name, shape = type(cell).__name__, x.shape
    if len(shape) not in (1, 2):
        raise InvalidTensor(
            f"{name}: a cell takes one step, x of shape (N, F) or (F,), got {tuple(shape)}. "
            f"Run a sequence with noisin.unroll(cell, x)."
        )
    if shape[-1] != cell.input_size:
        raise InvalidTensor(
            f"{name}: expected x with {cell.input_size} features, its input_size, got "
            f"{tuple(shape)}."
        )
    state_shapes(name, (*shape[:-1], cell.hidden_size), *states)


def state_shapes(name: str, expected: tuple[int, ...], *states: object) -> None:
    """Raise unless each state of a cell has the expected shape."""
    for state in states:
        if not isinstance(state, Tensor) or state.shape != expected:
            got = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
            raise InvalidTensor(
                f"{name}: expected a state of shape {expected}, got {got}. Pass the state of the "
                f"same batch, or None for zeros."
            )


def cell_input(cell: nn.Module, x: object, *states: object) -> None:
    """Raise unless x is a tensor and, as the states, of the kind of the cell's weights."""
    weight = cell._parameters.get("weight_ih")  # None while it is parametrized
    for value in (x, *states):
        if (
            weight is None
            or not isinstance(value, Tensor)
            or value.dtype != weight.dtype
            or value.device != weight.device
            or value.layout != torch.strided
        ):
            _explain_input(type(cell).__name__, "x" if value is x else "state", value, weight)


def _explain_input(name: str, what: str, value: object, weight: Tensor | None) -> None:
    """Raise if a value does not have the device and dtype of the weights."""
    if what == "x" or isinstance(value, Tensor):  # other states fail the check of shapes
        require_tensors(name, **{what: value})
    if weight is None or not isinstance(value, Tensor):
        return
    if value.dtype != weight.dtype and not torch_state.autocasting():
        raise InvalidDtype(
            f"{name}: {what} must be of {weight.dtype}, as the weights, got {value.dtype}. "
            f"Convert it: {what}.to({weight.dtype})."
        )
    if value.device != weight.device:
        raise InvalidTensor(
            f"{name}: {what} must be on {weight.device}, as the weights, got {value.device}. "
            f"Move it: {what}.to({str(weight.device)!r})."
        )


def initial_state(
    name: str, hx: Any, layout: Layout, layers: int, sizes: Sequence[int], like: Tensor
) -> tuple[Tensor, ...]:
    """A caller's initial state as a tuple of ``(layers, N, size)``, longest sequence first."""
    parts = checks.state_parts(name, hx, len(sizes))
    for part, size in zip(parts, sizes, strict=True):
        shape = (layers, layout.N, size) if layout.batched else (layers, size)
        if part.shape != shape:
            raise InvalidTensor(
                f"{name}: expected an initial state of shape {shape}, got {tuple(part.shape)}. "
                f"It is (num_layers · num_directions, N, size), without N for unbatched input. "
                f"Pass the state of the same batch, or None for zeros."
            )
        if part.dtype != like.dtype and not torch_state.autocasting():
            raise InvalidDtype(
                f"{name}: expected an initial state of {like.dtype}, as the input, got "
                f"{part.dtype}. Convert it: hx.to({like.dtype})."
            )
        if part.device != like.device:
            raise InvalidTensor(
                f"{name}: expected an initial state on {like.device}, as the input, got one on "
                f"{part.device}. Move it: hx.to({str(like.device)!r})."
            )
    return tuple([layout.enter_state(part) for part in parts])


def given_noise(
    name: str,
    eps: Tensor,
    layout: Layout,
    layers: int,
    size: int,
    used: Sequence[int],
    like: Tensor,
) -> Tensor:
    """A caller's noise, ``(layers, *lead, size)``, finite in the layers that are used."""
    checks.require_noise_tensor(name, eps, like)
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
        checks.require_finite(name, entered[layer])
    return entered


def factor(
    name: str, what: str, value: Any, layout: Layout, layers: int, size: int, like: Tensor
) -> Tensor:
    """A caller's factor on the recurrence, such as a mask, ``(layers, *lead, size)``, finite."""
    checks.require_noise_tensor(name, value, like, what, "factors")
    batch = (layout.N,) if layout.batched else ()
    expected = [(layers, T, *batch, size) for T in (layout.T, 1)]
    if value.shape not in expected:
        units = "hidden_size" if what in ("keep_c", "update_mask") else "H_out"
        units += ", or as many for each gate" if what == "read_mask" else ""
        raise InvalidValue(
            f"{name}: expected {what} of shape {expected[0]}, or {expected[1]} for one mask per "
            f"sequence, got {tuple(value.shape)}. It is (num_layers · num_directions, T, N, "
            f"{units}), whatever batch_first is, without N for unbatched input."
        )
    entered = layout.enter_steps(value.expand(expected[0]))
    checks.require_finite(name, value if layout.packed is None else entered, what)
    return entered


def given_weights(name: str, weights: Any, own: Mapping[str, Tensor]) -> None:
    """Raise unless a caller's weights are tensors that can stand in for parameters."""
    if not isinstance(weights, Mapping):
        raise InvalidType(
            f"{name}: weights must be a mapping from names of parameters to tensors, got "
            f"{type(weights).__name__}. Pass, for example, {{'weight_hh_l0': w}}."
        )
    for key, value in weights.items():
        if key not in own:
            raise InvalidValue(
                f"{name}: weights has {key!r:.60}, expected names of parameters: {', '.join(own)}."
            )
        require_tensors(name, **{key: value})
        like = own[key]
        found = (tuple(value.shape), value.dtype, value.device)
        if found != (tuple(like.shape), like.dtype, like.device):
            raise InvalidValue(
                f"{name}: expected a {key} of shape {tuple(like.shape)}, {like.dtype} and on "
                f"{like.device}, as the parameter, got {found[0]}, {found[1]} and on {found[2]}."
            )
