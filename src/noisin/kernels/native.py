"""The recurrence of a layer in C: the same as :mod:`noisin.kernels.eager`, compiled on first use.

The recurrent product and what the cell makes of it happen in one pass, in which each thread owns a
range of hidden units. See ``cells.h``.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from noisin.kernels import build
from noisin.kernels.plan import CELLS, Plan

_SUFFIX = {torch.float32: "float", torch.float64: "double"}
# Below so many multiplications a step, two threads wait for each other longer than they work.
_WORTH_A_THREAD = 30_000


class _Layer(ctypes.Structure):
    _fields_ = (
        *(
            (name, ctypes.c_long)
            for name in ("cell", "additive", "reverse", "T", "N", "H", "threads")
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
        getattr(loaded, f"block_{suffix}").restype = ctypes.c_long
        for name, tensors in (("forward", 9), ("backward", 12)):
            function = getattr(loaded, f"{name}_{suffix}")
            function.argtypes = [ctypes.POINTER(_Layer), *[ctypes.c_void_p] * tensors]
            function.restype = None
    return loaded


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
    state: list[Tensor],
    keep: bool,
) -> tuple[Tensor, Tensor | None]:
    """As :func:`noisin.kernels.eager.forward`."""
    z0, carry = state if len(state) > 1 else (state[0], None)
    z = torch.empty_like(eps)
    carries = None if carry is None or not keep else torch.empty_like(eps)
    _call("forward", plan, w_hh, gates, bias, w_hh, _panels(w_hh), z0, carry, eps, z, carries)
    return z, carries


def backward(
    plan: Plan,
    gates: Tensor,
    w_hh: Tensor,
    _: Tensor | None,
    eps: Tensor,
    state: list[Tensor],
    z: Tensor,
    carries: Tensor | None,
    d_z: Tensor,
    d_state: list[Tensor],
) -> tuple[Tensor, None]:
    """As :func:`noisin.kernels.eager.backward`."""
    z0, carry0 = state if len(state) > 1 else (state[0], None)
    d_carry = d_state[1] if len(d_state) > 1 else torch.empty_like(d_state[0])
    d_gates = torch.empty_like(gates)
    panels = _panels(w_hh)
    _call(
        "backward", plan, w_hh, gates, w_hh, panels, z0, carry0, eps, z, carries, d_z, d_state[0],
        d_carry, d_gates,
    )  # fmt: skip
    return d_gates, None


def _call(name: str, plan: Plan, w_hh: Tensor, *tensors: Tensor | None) -> None:
    H, T, N = w_hh.shape[1], len(plan.sizes), plan.N
    offsets = (ctypes.c_long * (T + 1))(*plan.offsets)
    threads = min(torch.get_num_threads(), 1 + N * w_hh.numel() // _WORTH_A_THREAD)
    additive = plan.mode == "additive"
    layer = _Layer(
        CELLS[plan.cell].code, additive, plan.reverse, T, N, H, threads, ctypes.addressof(offsets)
    )
    function: Any = getattr(library(), f"{name}_{_SUFFIX[w_hh.dtype]}")
    function(ctypes.byref(layer), *(None if t is None else t.data_ptr() for t in tensors))


def _panels(w_hh: Tensor) -> Tensor:
    """Room for the recurrent weights in the order that the product reads them."""
    block: int = getattr(library(), f"block_{_SUFFIX[w_hh.dtype]}")()
    H = w_hh.shape[1]
    return w_hh.new_empty(-(-H // block) * block * len(w_hh))
