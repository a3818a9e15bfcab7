"""A product of matrices in C, by the tiles of the recurrence. See ``gemm.h``."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor

from noisin.recurrent.kernels import compiled

# Below this many multiplications, starting a second thread costs more than it saves.
_WORTH_A_THREAD = 300_000


class _Product(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_long)
        for name in ("M", "N", "K", "a_row", "a_column", "b_row", "b_column", "c_row", "threads")
    )


def runs(a: Tensor, b: Tensor) -> bool:
    """Whether there is a compiled product for these matrices."""
    return (
        a.dtype in compiled.SUFFIX
        and a.dtype == b.dtype
        and a.device.type == b.device.type == "cpu"
        and a.numel() > 0
        and b.numel() > 0
        and compiled.library() is not None
    )


def product(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``a @ b`` for matrices of any strides; ``out`` may be columns of a larger matrix.

    >>> a, b = torch.randn(7, 5), torch.randn(9, 5).t()
    >>> not runs(a, b) or torch.allclose(product(a, b), a @ b, atol=1e-5)
    True
    """
    (M, K), N = a.shape, b.shape[1]
    assert b.shape[0] == K
    c = a.new_empty(M, N) if out is None else out
    assert c.shape == (M, N)
    assert c.stride(1) == 1
    threads = max(1, min(torch.get_num_threads(), 1 + M * N * K // _WORTH_A_THREAD))
    call = _Product(M, N, K, *a.stride(), *b.stride(), c.stride(0), threads)
    room_of, run = _functions(compiled.SUFFIX[a.dtype])
    room = a.new_empty(room_of(ctypes.byref(call)))
    run(ctypes.byref(call), room.data_ptr(), a.data_ptr(), b.data_ptr(), c.data_ptr())
    return c


@cache
def _functions(suffix: str) -> tuple[Any, Any]:
    library = compiled.library()
    room, run = getattr(library, f"gemm_room_{suffix}"), getattr(library, f"gemm_{suffix}")
    room.argtypes, room.restype = [ctypes.POINTER(_Product)], ctypes.c_long
    run.argtypes, run.restype = [ctypes.POINTER(_Product), *[ctypes.c_void_p] * 4], None
    return room, run
