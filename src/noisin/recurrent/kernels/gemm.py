"""A product of matrices in C, by the tiles of the recurrence. See ``gemm.h``."""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
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
    strides = *a.stride(), *b.stride(), c.stride(0)
    given, factors = None, None
    if masks is not None:
        assert masks.factors.dtype == a.dtype
        factors = masks.factors.data_ptr()
        given = masks.of, *masks.factors.shape, *masks.factors.stride()
    call = _prepared(compiled.SUFFIX[a.dtype], (M, N, K), strides, threads, given)
    room = a.new_empty(call.room)
    pointers = (t.data_ptr() for t in (room, a, b, c))
    call.function(ctypes.byref(call.numbers), *pointers, factors)
    return c


class _PreparedProduct(NamedTuple):
    """A call up to its tensors: what it depends on is the same in every batch."""

    function: Any
    numbers: _Product
    room: int  # numbers


@lru_cache(maxsize=256)
def _prepared(
    suffix: str,
    sizes: tuple[int, int, int],
    strides: tuple[int, ...],
    threads: int,
    masks: tuple[Any, ...] | None,
) -> _PreparedProduct:
    if masks is None:
        numbers = _Product(*sizes, *strides, threads, 0, 0, 0, 1)
    else:
        part, *others = _in_parts(sizes, strides, *masks)
        numbers = _Product(*part, *strides, threads, *others)
    room_of, function = _functions(suffix)
    return _PreparedProduct(function, numbers, room_of(ctypes.byref(numbers)))


def _in_parts(
    sizes: tuple[int, int, int], strides: tuple[int, ...], of: str, rows: int, width: int,
    row: int, column: int,
) -> tuple[Any, ...]:  # fmt: skip
    """The sizes of a part, and what follows the number of threads in ``struct gemm``.

    The masks of one of the matrices have so many rows and columns, which are so far apart.
    """
    (M, N, K), (a_row, a_column, b_row, b_column, c_row) = sizes, strides
    masked, columns = {"a": (M, K), "b": (K, N), "c": (M, N)}[of]
    R = width // columns
    assert R * columns == width
    assert {"a": N, "b": M, "c": K}[of] % R == 0
    assert rows > 0
    assert masked % rows == 0
    assert column == 1
    m, n, k = {"a": (M, N // R, K), "b": (M // R, N, K), "c": (M, N, K // R)}[of]
    a_part = {"a": 0, "b": m * a_row, "c": k * a_column}[of]
    b_part = {"a": n * b_column, "b": 0, "c": k * b_row}[of]
    c_part = {"a": n, "b": m * c_row, "c": 0}[of]
    return (m, n, k), _MASKED[of], rows, row, R, a_part, b_part, c_part, columns


@cache
def _functions(suffix: str) -> tuple[Any, Any]:
    library = compiled.library()
    room, run = getattr(library, f"gemm_room_{suffix}"), getattr(library, f"gemm_{suffix}")
    room.argtypes, room.restype = [ctypes.POINTER(_Product)], ctypes.c_long
    run.argtypes, run.restype = [ctypes.POINTER(_Product), *[ctypes.c_void_p] * 5], None
    return room, run
