"""The recurrence of a layer in C: the same as :mod:`~.kernels.eager`, compiled on first use.

The recurrent product and what the cell makes of it happen in one pass, in which each thread owns a
range of hidden units. See ``cells.h``.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from noisin.errors import InvalidValue
from noisin.recurrent.kernels import build
from noisin.recurrent.kernels.plan import Plan

_SUFFIX = {torch.float32: "float", torch.float64: "double"}
# Below this many multiplications per step, synchronizing two threads costs more than it saves.
_WORTH_A_THREAD = 30_000


class Tiling(NamedTuple):
    """How the recurrent product is cut: at the edges of these a shape can go wrong."""

    chunk: int  # rows at a time
    tall: int  # rows of a tile, at most
    low: int  # rows of a tile where one that is tall would leave few
    near: int  # terms of a sum at a time
    block: int  # hidden units at a time


class _Call(ctypes.Structure):
    _fields_ = (
        *(
            (name, ctypes.c_long)
            for name in ("cell", "additive", "reverse", "T", "N", "H", "threads", "masked")
        ),
        ("offset", ctypes.c_void_p),
    )


@cache
def library() -> ctypes.CDLL | None:
    """The compiled recurrences, or None where there is no working compiler."""
    loaded = build.load()
    return None if loaded is None else _typed(loaded)


def load(path: Path) -> None:
    """Take this library from now on: how a trial runs one that is not trusted yet."""
    global library
    loaded = _typed(ctypes.CDLL(str(path)))
    library = cache(lambda: loaded)


def _typed(loaded: ctypes.CDLL) -> ctypes.CDLL:
    for suffix in _SUFFIX.values():
        room = getattr(loaded, f"room_{suffix}")
        room.argtypes, room.restype = [ctypes.POINTER(_Call), ctypes.c_long], ctypes.c_long
        for name, tensors in (("forward", 10), ("backward", 13)):
            function = getattr(loaded, f"{name}_{suffix}")
            function.argtypes = [ctypes.POINTER(_Call), *[ctypes.c_void_p] * tensors]
            function.restype = None
    return loaded


def tiling(dtype: torch.dtype) -> Tiling:
    """That of the loaded library."""
    loaded = library()
    assert loaded is not None
    numbers = ctypes.c_long * len(Tiling._fields)
    return Tiling(*numbers.in_dll(loaded, f"tiling_{_SUFFIX[dtype]}"))


def runs(x: Tensor, w_hr: Tensor | None) -> bool:
    """Whether there is a compiled recurrence for these tensors."""
    supported = x.device.type == "cpu" and x.dtype in _SUFFIX and w_hr is None
    return supported and library() is not None


def forward(
    plan: Plan,
    gates: Tensor,
    bias: Tensor | None,
    w_hh: Tensor,
    _: Tensor | None,
    eps: Tensor,
    mask: Tensor | None,
    state: list[Tensor],
    keep: bool,
) -> tuple[Tensor, Tensor | None]:
    """As :func:`noisin.recurrent.kernels.eager.forward`."""
    z0, carry = state if len(state) > 1 else (state[0], None)
    z = torch.empty_like(eps)
    carries = None if carry is None or not keep else torch.empty_like(eps)
    _call(
        "forward", plan, w_hh, gates=gates, bias=bias, u=w_hh, z0=z0, carry=carry, eps=eps,
        mask=mask, z=z, carries=carries,
    )  # fmt: skip
    return z, carries


def backward(
    plan: Plan,
    gates: Tensor,
    w_hh: Tensor,
    _: Tensor | None,
    eps: Tensor,
    mask: Tensor | None,
    state: list[Tensor],
    z: Tensor,
    carries: Tensor | None,
    d_z: Tensor,
    d_state: list[Tensor],
) -> tuple[Tensor, None]:
    """As :func:`noisin.recurrent.kernels.eager.backward`."""
    z0, carry0 = state if len(state) > 1 else (state[0], None)
    d_carry = d_state[1] if len(d_state) > 1 else torch.empty_like(d_state[0])
    d_gates = torch.empty_like(gates)
    _call(
        "backward", plan, w_hh, gates=gates, u=w_hh, z0=z0, carry=carry0, eps=eps, mask=mask,
        z=z, carries=carries, d_z=d_z, d_state=d_state[0], d_carry=d_carry, d_gates=d_gates,
    )  # fmt: skip
    return d_gates, None


def _call(name: str, plan: Plan, w_hh: Tensor, **tensors: Tensor | None) -> None:
    """Call a function of the library with these tensors, which are in its order."""
    _check(name, plan, w_hh, tensors)
    H, T, N, dtype = w_hh.shape[1], len(plan.sizes), plan.N, w_hh.dtype
    offsets = (ctypes.c_long * (T + 1))(*plan.offsets)
    layer = _Call(
        plan.cell.code, plan.mode == "additive", plan.reverse, T, N, H, _threads(plan, w_hh),
        tensors["mask"] is not None, ctypes.addressof(offsets),
    )  # fmt: skip
    loaded, suffix = library(), _SUFFIX[dtype]
    size: int = getattr(loaded, f"room_{suffix}")(ctypes.byref(layer), name == "backward")
    room = w_hh.new_empty(size)
    function: Any = getattr(loaded, f"{name}_{suffix}")
    pointers = (None if t is None else t.data_ptr() for t in tensors.values())
    function(ctypes.byref(layer), room.data_ptr(), *pointers)


def _threads(plan: Plan, w_hh: Tensor) -> int:
    """As many as torch has, where there is work for them."""
    blocks = -(-w_hh.shape[1] // tiling(w_hh.dtype).block)
    worth = 1 + plan.N * w_hh.numel() // _WORTH_A_THREAD
    return max(1, min(torch.get_num_threads(), worth, blocks))


def _check(name: str, plan: Plan, w_hh: Tensor, tensors: dict[str, Tensor | None]) -> None:
    """Raise unless every tensor is what the library takes it for: it reads and writes on trust."""
    H, cell = w_hh.shape[1], plan.cell
    optional = {"bias", "mask", *(() if cell.carry else ("carry", "carries"))}
    if name == "forward":  # which keeps the carries of all steps for a backward only
        optional.add("carries")
    kind = (w_hh.dtype, torch.device("cpu"), True)
    for key, shape in _shapes(plan, cell.slots, cell.recurrent, H).items():
        t = tensors.get(key)
        if t is None and (key in optional or key not in tensors):
            continue
        if (
            t is None
            or t.shape != shape
            or (t.dtype, t.device, t.is_contiguous()) != kind
            or (t.data_ptr() == 0 and t.numel() > 0)
        ):
            got = "None" if t is None else f"{tuple(t.shape)}, {t.dtype}, {t.device}, {t.stride()}"
            raise InvalidValue(
                f"kernels: {key} must be a contiguous tensor of shape {shape} and {w_hh.dtype}, "
                f"allocated on the CPU, got {got}. Pass tensors as noisin.LSTM does."
            )


def _shapes(plan: Plan, slots: int, recurrent: int, H: int) -> dict[str, tuple[int, ...]]:
    S, N = plan.offsets[-1], plan.N
    rows = dict.fromkeys(("eps", "mask", "z", "carries", "d_z"), (S, H))
    states = dict.fromkeys(("z0", "carry", "d_state", "d_carry"), (N, H))
    gates = dict.fromkeys(("gates", "d_gates"), (S, slots * H))
    return {"u": (recurrent * H, H), "bias": (slots * H,), **rows, **states, **gates}
