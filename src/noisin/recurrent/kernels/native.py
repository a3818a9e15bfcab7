"""The recurrence of a layer in C: the same as :mod:`~.kernels.eager`, prebuilt or compiled.

The recurrent product and what the cell makes of it happen in one pass, in which each thread owns a
range of hidden units. See ``cells.h``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from noisin.recurrent.functional import Factors
from noisin.recurrent.kernels import compiled, masks, signature
from noisin.recurrent.kernels.plan import Plan
from noisin.recurrent.kernels.products import LAYER

# Below this many multiplications per step, synchronizing two threads costs more than it saves.
_WORTH_A_THREAD = 30_000
# Below this many units, the same for a step without its product.
_UNITS_WORTH_A_THREAD = 8192


def runs(x: Tensor) -> bool:
    """Whether there is a compiled recurrence for these tensors."""
    return x.device.type == "cpu" and x.dtype in compiled.SUFFIX and compiled.library() is not None


def forward(
    plan: Plan,
    gates: Tensor,
    bias: Tensor | None,
    w_hh: Tensor,
    w_hr: Tensor | None,
    eps: Tensor,
    mask: Tensor | None,
    state: list[Tensor],
    keep: bool,
    factors: Factors = Factors(),  # noqa: B008 - immutable
) -> tuple[Tensor, Tensor | None]:
    """As :func:`noisin.recurrent.kernels.eager.forward`."""
    z0, carry = state if len(state) > 1 else (state[0], None)
    z = torch.empty_like(eps)
    carries = None if carry is None or not keep else eps.new_empty(len(eps), carry.shape[1])
    _call(
        "forward", plan, w_hh, factors, gates=gates, bias=bias, u=w_hh, w_hr=_contiguous(w_hr),
        z0=z0, carry=carry, eps=eps, mask=mask, z=z, carries=carries,
    )  # fmt: skip
    return z, carries


def backward(
    plan: Plan,
    gates: Tensor,
    w_hh: Tensor,
    w_hr: Tensor | None,
    eps: Tensor,
    mask: Tensor | None,
    state: list[Tensor],
    z: Tensor,
    carries: Tensor | None,
    d_z: Tensor,
    d_state: list[Tensor],
    need_z0: bool = True,
    factors: Factors = Factors(),  # noqa: B008 - immutable
) -> tuple[Tensor, Tensor | None]:
    """As :func:`noisin.recurrent.kernels.eager.backward`."""
    z0, carry0 = state if len(state) > 1 else (state[0], None)
    d_carry = d_state[1] if len(d_state) > 1 else torch.empty_like(d_state[0])
    stride = signature.row_stride(gates.shape[1], gates.dtype)
    d_gates = gates.new_empty(len(gates), stride)[:, : gates.shape[1]]
    d_projected = None if w_hr is None else torch.empty_like(z)
    _call(
        "backward", plan, w_hh, factors, gates=gates, u=w_hh, w_hr=_contiguous(w_hr), z0=z0,
        carry=carry0, eps=eps, mask=mask, z=z, carries=carries, d_z=d_z, d_state=d_state[0],
        d_carry=d_carry, d_gates=d_gates, d_projected=d_projected,
    )  # fmt: skip
    if need_z0 and _alone(plan, w_hr):
        along = None if carries is not None or plan.cell.slots == 1 else d_carry
        d_read = _multiply_back(d_gates, w_hh, mask, along)
        if factors.keep_h is not None and (plan.cell.memory or carries is None):
            d_read += factors.keep_h * _emit_back(plan, eps, d_z + d_state[0])
        d_state[0] = d_read
    return d_gates, d_projected


def _contiguous(w: Tensor | None) -> Tensor | None:
    return None if w is None else w.contiguous()


class _Prepared(NamedTuple):
    """A call of the library up to its tensors: what it depends on is the same in every batch."""

    function: Any
    layer: compiled.Call
    room: int  # numbers
    offsets: Any  # which the layer points to


def _call(
    name: str,
    plan: Plan,
    w_hh: Tensor,
    factors: Factors = Factors(),  # noqa: B008 - immutable
    **tensors: Tensor | None,
) -> None:
    """Call a function of the library with these tensors, which are in its order."""
    signature.check(name, plan, w_hh, tensors)
    leading: tuple[Any, ...] = ()
    if factors.given:
        signature.check_factors(plan, w_hh, tensors["w_hr"], factors)
        leading = (ctypes.byref(compiled.FactorPointers(*map(_pointer, factors))),)
        kind = f"{name}_factored"
    else:
        kind = name
    alone = _alone(plan, tensors["w_hr"])
    if alone and name == "forward":
        _multiply(plan, tensors)
    H, P = signature.sizes(w_hh, tensors["w_hr"])
    threads = _threads(plan, w_hh, H, alone)
    mask = tensors["mask"]
    masked = 0 if mask is None else mask.shape[1] // w_hh.shape[1]
    held = mask is not None and masks.is_held(plan, mask)
    call = _prepared(compiled.library(), kind, plan, H, P, threads, masked, held, alone, w_hh.dtype)
    room = w_hh.new_empty(call.room)
    pointers = map(_pointer, tensors.values())
    call.function(*leading, ctypes.byref(call.layer), room.data_ptr(), *pointers)


def _pointer(t: Tensor | None) -> int | None:
    return None if t is None else t.data_ptr()


@lru_cache(maxsize=256)
def _prepared(
    loaded: ctypes.CDLL, name: str, plan: Plan, H: int, P: int, threads: int, masked: int,
    held: bool, alone: bool, dtype: torch.dtype,
) -> _Prepared:  # fmt: skip
    T, N, suffix = len(plan.sizes), plan.N, compiled.SUFFIX[dtype]
    offsets = (ctypes.c_long * (T + 1))(*plan.offsets)
    layer = compiled.Call(
        plan.cell.code, plan.mode == "additive", plan.reverse, T, N, H, P, threads, masked, held,
        alone, signature.row_stride(plan.cell.slots * H, dtype), ctypes.addressof(offsets),
    )  # fmt: skip
    room = getattr(loaded, f"room_{suffix}")(ctypes.byref(layer), name.startswith("backward"))
    return _Prepared(getattr(loaded, f"{name}_{suffix}"), layer, room, offsets)


def _threads(plan: Plan, w_hh: Tensor, H: int, alone: bool = False) -> int:
    """As many as torch has, where there is work for them."""
    blocks = -(-H // compiled.tiling(w_hh.dtype).block)
    if alone:
        worth = 1 + plan.N * H // _UNITS_WORTH_A_THREAD
    else:
        worth = 1 + plan.N * w_hh.numel() // _WORTH_A_THREAD
    return max(1, min(torch.get_num_threads(), worth, blocks))


def _alone(plan: Plan, w_hr: Tensor | None) -> bool:
    """Whether the product is that of a library: one step is not worth laying out the weights."""
    return len(plan.sizes) == 1 and w_hr is None


def _multiply(plan: Plan, tensors: Mapping[str, Any]) -> None:
    """Add the recurrent product of the only step to the gates."""
    gates, u, read, mask = (tensors[key] for key in ("gates", "u", "z0", "mask"))
    given = gates.shape[1] - len(u)  # columns that the state does not add to
    if given:
        gates[:, plan.cell.inputs * u.shape[1] :] = 0
    masks.multiply(gates[:, given:] if given else gates, read, mask, u, partial(LAYER.add, "input"))


def _multiply_back(d_gates: Tensor, u: Tensor, mask: Any, along: Any) -> Tensor:
    """The gradient of the only step's z0; ``along`` is what flows past the weights."""
    d_recurrent = d_gates[:, d_gates.shape[1] - len(u) :]
    if along is not None:  # which goes with no mask
        return LAYER.add("back", along, d_recurrent, u)
    return masks.multiply_back(d_recurrent, mask, u, product=partial(LAYER, "back"))


def _emit_back(plan: Plan, eps: Tensor, d_z: Tensor) -> Tensor:
    """The gradient of h from that of z."""
    return d_z if plan.mode == "additive" else d_z + d_z * eps
