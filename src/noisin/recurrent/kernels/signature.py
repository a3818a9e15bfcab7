"""The shapes of the tensors that the compiled recurrences take, and the check of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor

from noisin.errors import InvalidValue
from noisin.recurrent.functional import Factors
from noisin.recurrent.kernels.plan import Plan

Tensors = Mapping[str, Tensor | None]
Shapes = Mapping[str, tuple[int, ...]]
_CPU = torch.device("cpu")
_CACHE_LINE = 64  # bytes
_ALIASED = 1024  # bytes: rows at a multiple of this distance compete for few lines of a cache


def sizes(w_hh: Tensor, w_hr: Tensor | None) -> tuple[int, int]:
    """The number of hidden units, and of those that they are projected to: 0 for none."""
    return (w_hh.shape[1], 0) if w_hr is None else (w_hr.shape[1], w_hh.shape[1])


def row_stride(columns: int, dtype: torch.dtype) -> int:
    """From one row of ``d_gates`` to the next.

    The same column of rows whose distance is a large power of two has its place in the same few
    lines of the cache. Such rows, as those of 64, 128 or 256 units, are one line further apart.

    >>> row_stride(4 * 256, torch.float32), row_stride(4 * 650, torch.float32)
    (1040, 2600)
    """
    aliased = columns * dtype.itemsize % _ALIASED == 0
    return columns + _CACHE_LINE // dtype.itemsize if aliased else columns


def check(name: str, plan: Plan, w_hh: Tensor, tensors: Tensors) -> None:
    """Raise unless every tensor is what the library takes it for: it reads and writes on trust."""
    w_hr, dtype = tensors["w_hr"], w_hh.dtype
    H, P = sizes(w_hh, w_hr)
    if w_hr is not None and (plan.cell.name != "lstm" or P == 0):
        raise InvalidValue(
            f"kernels: w_hr projects the hidden state of an LSTM, got it for {P} units of "
            f"{plan.cell.name}. Pass tensors as noisin.LSTM does."
        )
    optional = _optional(name, plan.cell.carry, P > 0)
    for key, shape in _shapes(name, plan, H, P).items():
        t = tensors[key]
        if t is None:
            if key not in optional:
                raise _wrong(key, t, shape, dtype)
        elif key == "mask" and _is_mask(plan, t, shape, dtype):
            continue
        elif not _fits(t, shape, dtype, row_stride(shape[1], dtype) if key == "d_gates" else 0):
            raise _wrong(key, t, shape, dtype)


def _is_mask(plan: Plan, t: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether it is one mask for all gates or one for each, of all steps or held."""
    columns = shape[1], plan.cell.recurrent * shape[1]
    return any(_fits(t, (rows, n), dtype) for rows in (shape[0], plan.N) for n in columns)


def check_factors(plan: Plan, w_hh: Tensor, w_hr: Tensor | None, factors: Factors) -> None:
    """The same for factors, of which the others are None."""
    S, (H, P) = plan.offsets[-1], sizes(w_hh, w_hr)
    widths = {"keep_h": P or H, "keep_c": H, "update": H}
    for key, t in zip(Factors._fields, factors, strict=True):
        if t is not None and not _fits(t, (S, widths[key]), w_hh.dtype):
            raise _wrong(key, t, (S, widths[key]), w_hh.dtype)


def _fits(t: Tensor, shape: tuple[int, ...], dtype: torch.dtype, stride: int = 0) -> bool:
    """Whether it is such a tensor, contiguous unless its rows have another distance."""
    return (
        t.shape == shape
        and t.dtype == dtype
        and t.device == _CPU
        and (t.stride() == (stride, 1) if stride else t.is_contiguous())
        and (t.data_ptr() != 0 or t.numel() == 0)
    )


def _wrong(key: str, t: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> InvalidValue:
    got = "None" if t is None else f"{tuple(t.shape)}, {t.dtype}, {t.device}, {t.stride()}"
    return InvalidValue(
        f"kernels: {key} must be a contiguous tensor of shape {shape} and {dtype}, allocated on "
        f"the CPU, got {got}. Pass tensors as noisin.LSTM does."
    )


@lru_cache
def _optional(name: str, carry: bool, projected: bool) -> frozenset[str]:
    """The tensors that may be None."""
    optional = {"bias", "mask"}
    if not carry or name == "forward":  # which keeps the carries of all steps for a backward only
        optional.add("carries")
    if not carry:
        optional.add("carry")
    return frozenset(optional if projected else optional | {"w_hr", "d_projected"})


@lru_cache(maxsize=256)
def _shapes(name: str, plan: Plan, H: int, P: int) -> Shapes:
    """Of every tensor, where h has H units and z those of the projection, or H if P is 0.

    The weights come first: if they are wrong, so are the shapes of the others.
    """
    S, N, Z, cell = plan.offsets[-1], plan.N, P or H, plan.cell
    weights = {"u": (cell.recurrent * H, Z), "w_hr": (Z, H)}
    rows, states = dict.fromkeys(("eps", "mask", "z"), (S, Z)), {"z0": (N, Z), "carry": (N, H)}
    every = {**weights, **rows, **states, "gates": (S, cell.slots * H), "carries": (S, H)}
    if name == "forward":
        return {**every, "bias": (cell.slots * H,)}
    gradients = {"d_z": (S, Z), "d_state": (N, Z), "d_carry": (N, H), "d_projected": (S, Z)}
    return {**every, **gradients, "d_gates": (S, cell.slots * H)}
