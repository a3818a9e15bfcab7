"""A product of matrices in C, by the tiles of the recurrence. See ``gemm.h``."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from noisin.recurrent.kernels import compiled

# Below this many multiplications, starting a second thread costs more than it saves.
_WORTH_A_THREAD = 300_000

_NUMBERS = (
    "M", "N", "K", "a_row", "a_column", "b_row", "b_column", "c_row", "threads",
    "masked", "mask_rows", "mask_row", "parts", "a_part", "b_part", "c_part", "mask_part",
)  # fmt: skip
_MASKED = {"a": 1, "b": 2, "c": 3}  # as in ``enum masked``


class _Product(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_long) for name in _NUMBERS)


class PartMasks(NamedTuple):
    """The factors of one of the matrices in each of R parts of a product ``c = a b``.

    They follow one another in R times as many columns as the matrix has in a part, and their rows
    repeat where there are fewer than it has. The parts are those of b and c, column by column, if a
    has the masks; those of a and c, row by row, if b has; and if c has, those of the sum over k.
    """

    of: Literal["a", "b", "c"]
    factors: Tensor


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


def product(
    a: Tensor, b: Tensor, *, out: Tensor | None = None, masks: PartMasks | None = None
) -> Tensor:
    """``a @ b`` for matrices of any strides; ``out`` may be columns of a larger matrix.

    >>> a, b = torch.randn(6, 5), torch.randn(8, 5).t()
    >>> not runs(a, b) or torch.allclose(product(a, b), a @ b, atol=1e-5)
    True

    With masks of a, one for the first half of the columns of the product and one for the others:

    >>> first, other = torch.rand(6, 5), torch.rand(6, 5)
    >>> masked = torch.cat([(a * first) @ b[:, :4], (a * other) @ b[:, 4:]], 1)
    >>> masks = PartMasks("a", torch.cat([first, other], 1))
    >>> not runs(a, b) or torch.allclose(product(a, b, masks=masks), masked, atol=1e-5)
    True
    """
    (M, K), N = a.shape, b.shape[1]
    assert b.shape[0] == K
    c = a.new_empty(M, N) if out is None else out
    assert c.shape == (M, N)
    assert c.stride(1) == 1
    threads = max(1, min(torch.get_num_threads(), 1 + M * N * K // _WORTH_A_THREAD))
    strides = *a.stride(), *b.stride(), c.stride(0), threads
    if masks is None:
        call = _Product(M, N, K, *strides, 0, 0, 0, 1)
    else:
        call = _Product(*_in_parts(masks, (M, N, K), strides))
    room_of, run = _functions(compiled.SUFFIX[a.dtype])
    room = a.new_empty(room_of(ctypes.byref(call)))
    factors = None if masks is None else masks.factors.data_ptr()
    run(ctypes.byref(call), room.data_ptr(), a.data_ptr(), b.data_ptr(), c.data_ptr(), factors)
    return c


def _in_parts(
    masks: PartMasks, sizes: tuple[int, int, int], strides: tuple[int, ...]
) -> tuple[int, ...]:
    """The numbers of a product in parts."""
    (M, N, K), (a_row, a_column, b_row, b_column, c_row, _) = sizes, strides
    of, factors = masks
    rows, columns = {"a": (M, K), "b": (K, N), "c": (M, N)}[of]
    R = factors.shape[1] // columns
    assert factors.shape[1] == R * columns
    assert len(factors) > 0
    assert rows % len(factors) == 0
    assert factors.stride(1) == 1
    assert {"a": N, "b": M, "c": K}[of] % R == 0
    m, n, k = {"a": (M, N // R, K), "b": (M // R, N, K), "c": (M, N, K // R)}[of]
    part = {
        "a": (0, n * b_column, n),
        "b": (m * a_row, 0, m * c_row),
        "c": (k * a_column, k * b_row, 0),
    }[of]
    return m, n, k, *strides, _MASKED[of], len(factors), factors.stride(0), R, *part, columns


@cache
def _functions(suffix: str) -> tuple[Any, Any]:
    library = compiled.library()
    room, run = getattr(library, f"gemm_room_{suffix}"), getattr(library, f"gemm_{suffix}")
    room.argtypes, room.restype = [ctypes.POINTER(_Product)], ctypes.c_long
    run.argtypes, run.restype = [ctypes.POINTER(_Product), *[ctypes.c_void_p] * 5], None
    return room, run
