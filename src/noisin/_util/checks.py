"""Checks of the arguments of public functions. The rest of the library relies on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.fx import Proxy  # represents a tensor while torch.fx traces a model

from noisin._util import arguments
from noisin._util.torch_state import autocasting, compiling, values_known
from noisin._util.wording import shown
from noisin.errors import InvalidType, InvalidValue

# The dtypes that torch computes in. Others, such as float8, can only be stored and converted.
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
NUMBERS = (*FLOATS, *INTEGERS, torch.bool)


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
    """Raise unless all arguments are dense tensors."""
    for name, value in tensors.items():
        if not isinstance(value, Tensor | Proxy):
            raise InvalidType(
                f"{where}: {name} must be a tensor, got {type(value).__name__}. "
                f"Convert it with torch.as_tensor({name})."
            )
        if isinstance(value, Tensor) and value.layout != torch.strided:
            raise InvalidType(
                f"{where}: {name} must be a dense tensor, got one with layout {value.layout}. "
                f"Convert it with {name}.to_dense()."
            )


def require_cell(where: str, cell: object) -> None:
    """Raise unless ``cell`` can be called as ``(x, state) -> state``."""
    if isinstance(cell, type) or not callable(cell) or not _steps(cell):
        raise InvalidType(
            f"{where}: expected a cell (x, state) -> state, got {shown(cell)}. "
            f"Pass an instance, such as torch.nn.LSTMCell(16, 16)."
        )
    if isinstance(cell, nn.RNNBase):
        name = type(cell).__name__
        raise InvalidType(
            f"{where}: expected a cell, got {name}, which runs whole sequences. Call it directly; "
            f"for noise, use noisin.{name}(..., noise=noise) or noisin.convert."
        )


def require_module(where: str, model: object) -> None:
    """Raise unless ``model`` is a module."""
    if not isinstance(model, nn.Module):
        raise InvalidType(
            f"{where}: expected a model, a torch.nn.Module, got {type(model).__name__}. "
            f"The model is the first argument."
        )


def require_noise_tensor(
    name: str, eps: object, like: Tensor | None = None, what: str = "eps", of: str = "centred noise"
) -> None:
    """Raise unless ``eps`` is a floating-point tensor that can be moved to where ``like`` is."""
    if not isinstance(eps, Tensor) or eps.dtype not in FLOATS or eps.layout != torch.strided:
        got = type(eps).__name__
        if isinstance(eps, Tensor):
            got = f"a tensor of {eps.dtype if eps.layout == torch.strided else eps.layout}"
        raise InvalidType(f"{name}: {what} must be a floating-point tensor of {of}, got {got}.")
    if eps.is_meta and like is not None and not like.is_meta:
        raise InvalidValue(
            f"{name}: {what} is on the meta device and has no values. Make it on {like.device}."
        )


def require_finite(name: str, eps: Tensor, what: str = "eps") -> None:
    """Raise where noise, or another factor, that will be used contains NaN or infinity."""
    if values_known(eps) and not all_finite(eps):
        raise InvalidValue(
            f"{name}: {what} contains NaN or infinity at steps that are used. Pass finite values."
        )


def all_finite(values: Tensor) -> bool:
    """Whether there is neither NaN nor infinity.

    A sum is finite only if all its terms are, and takes a tenth of the time of a look at each. It
    may overflow, too, and then each is looked at. Of an expanded dimension one entry is enough.

    >>> all_finite(torch.tensor([3e38, 3e38])), all_finite(torch.tensor([torch.inf, -torch.inf]))
    (True, False)
    """
    for dim, (size, stride) in enumerate(zip(values.shape, values.stride(), strict=True)):
        if stride == 0 and size > 1:
            values = values.narrow(dim, 0, 1)
    return bool(values.sum().isfinite()) or bool(values.isfinite().all())


def require_model(where: str, model: object) -> None:
    """Raise unless ``model`` can be called as ``(x, state) -> (s, state)``."""
    if isinstance(model, type) or not callable(model) or not _steps(model):
        raise InvalidType(
            f"{where}: expected a model (x, state) -> (s, state), got {type(model).__name__}. Pass "
            f"an instance, such as noisin.LSTM(16, 16) or your own module."
        )


def model_output(where: str, output: object) -> tuple[Tensor, Any]:
    """Return ``output`` if it is ``(s, state)`` as a model must return, else raise."""
    if isinstance(output, tuple) and len(output) == 2 and isinstance(output[0], Tensor):
        return output
    raise InvalidType(
        f"{where}: expected the model to return (s, state) with a tensor s, got "
        f"{type(output).__name__}. A model is model(x, state) -> (s, state)."
    )


def _steps(cell: Any) -> bool:
    """Whether a callable accepts ``(x, state)``."""
    return isinstance(cell, nn.RNNCellBase | nn.RNNBase) or takes(cell, 2)


def takes(function: Callable[..., object], count: int) -> bool:
    """Whether a function or module accepts ``count`` positional arguments.

    While compiling, always true: the compiler cannot trace the inspection of a signature.
    """
    called = function.forward if isinstance(function, nn.Module) else function
    return compiling() or arguments.takes(called, count)


def require_real(where: str, **tensors: object) -> None:
    """Raise unless all arguments are tensors of floating-point numbers."""
    require_tensors(where, **tensors)
    for name, value in tensors.items():
        if isinstance(value, Tensor) and value.dtype not in FLOATS:
            raise InvalidType(
                f"{where}: {name} must be a floating-point tensor, got {value.dtype}. "
                f"Convert it, e.g. {name}.float()."
            )


def require_numbers(where: str, **tensors: object) -> None:
    """Raise unless all arguments are tensors of real numbers, whole numbers or booleans."""
    require_tensors(where, **tensors)
    for name, value in tensors.items():
        if isinstance(value, Tensor) and value.dtype not in NUMBERS:
            raise InvalidType(
                f"{where}: {name} must contain real or whole numbers, got {value.dtype}. "
                f"Convert it, e.g. {name}.long() or {name}.float()."
            )


def require_one_device(where: str, **tensors: Tensor | None) -> None:
    """Raise unless all given tensors are on one device."""
    devices = {name: value.device for name, value in tensors.items() if isinstance(value, Tensor)}
    if len(set(devices.values())) > 1:
        got = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise InvalidValue(f"{where}: expected tensors on one device, got {got}. Move them: .to().")


def require_one_kind(where: str, **tensors: Tensor | None) -> None:
    """Raise unless all given tensors are on one device and, without autocast, of one dtype."""
    require_one_device(where, **tensors)
    dtypes = {name: value.dtype for name, value in tensors.items() if isinstance(value, Tensor)}
    if len(set(dtypes.values())) > 1 and not autocasting():
        got = ", ".join(f"{name} of {dtype}" for name, dtype in dtypes.items())
        raise InvalidType(
            f"{where}: expected tensors of one dtype, got {got}. Convert them: .to()."
        )


def require_generator(where: str, generator: object, device: torch.device | None = None) -> None:
    """Raise unless ``generator`` is None or a generator that can draw on ``device``."""
    if not isinstance(generator, Generator | None):
        seed = generator if isinstance(generator, int) else 1111
        raise InvalidType(
            f"{where}: generator must be a torch.Generator or None, got {generator!r:.60}. "
            f"To seed one, use torch.Generator().manual_seed({seed})."
        )
    if generator is None or device is None or device.type == "meta":
        return
    if generator.device.type != device.type:
        raise InvalidValue(
            f"{where}: generator is on {generator.device} and cannot draw on {device}. "
            f"Create it there: torch.Generator({str(device)!r})."
        )


def sizes(where: str, shape: object) -> tuple[int, ...]:
    """Return a shape as a tuple; raise unless it is a sequence of non-negative integers."""
    if isinstance(shape, list | tuple) and all(map(_is_size, shape)):
        return tuple(shape)
    advice = f"Pass ({shape},)." if isinstance(shape, int) else "Pass, for example, (35, 20, 650)."
    raise InvalidType(f"{where}: shape must be a sequence of sizes, got {shape!r:.60}. {advice}")


def _is_size(n: Any) -> bool:
    if type(n) is int:  # as almost always: the test of an abstract class below takes a while
        return 0 <= n <= arguments.LARGEST
    if isinstance(n, torch.SymInt):  # of a tracer
        return True
    whole = isinstance(n, Integral) and not isinstance(n, bool)  # numpy's integers too
    return whole and 0 <= int(n) <= arguments.LARGEST


def state_parts(name: str, state: Any, count: int) -> tuple[Tensor, ...]:
    """Return the tensors of a state: ``(h,)``, or ``(h, c)`` if ``count`` is 2; else raise."""
    parts = state if count > 1 else (state,)
    if (
        not isinstance(parts, tuple | list)
        or len(parts) != count
        or not all(isinstance(part, Tensor) and part.layout == torch.strided for part in parts)
    ):
        expected = "a tensor h_0" if count == 1 else "a tuple (h_0, c_0) of tensors"
        raise InvalidType(
            f"{name}: the initial state must be {expected}, got {type(state).__name__}. "
            f"Pass what a previous call returned, or None for zeros."
        )
    return tuple(parts)
