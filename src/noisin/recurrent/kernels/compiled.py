"""The library of compiled recurrences and products, prebuilt or compiled on first use."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from noisin.recurrent.functional import Factors
from noisin.recurrent.kernels import build, prebuilt

SUFFIX = {torch.float32: "float", torch.float64: "double"}  # of the name of a function


class Tiling(NamedTuple):
    """How the recurrent product is cut: at the edges of these a shape can go wrong."""

    chunk: int  # rows at a time
    tall: int  # rows of a tile, at most
    low: int  # rows of a tile, at least, where there are more rows than those of one
    near: int  # terms of a sum at a time
    block: int  # hidden units at a time


_NUMBERS = (
    "cell", "additive", "reverse", "T", "N", "H", "P", "threads", "masked", "held", "multiplied",
    "D",
)  # fmt: skip


class Call(ctypes.Structure):
    """``struct layer``."""

    _fields_ = (*((name, ctypes.c_long) for name in _NUMBERS), ("offset", ctypes.c_void_p))


class FactorPointers(ctypes.Structure):
    """``struct factors``."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in Factors._fields)


@cache
def library() -> ctypes.CDLL | None:
    """The compiled recurrences, or None where they are neither prebuilt nor can be compiled."""
    loaded = prebuilt.load() or build.load()
    return None if loaded is None else _typed(loaded)


def origin() -> str | None:
    """Where the library comes from: ``prebuilt avx2``, ``compiled``, or None if there is none."""
    loaded = library()
    if loaded is None:
        return None
    variant = prebuilt.variant(loaded)
    return "compiled" if variant is None else f"prebuilt {variant}"


def load(path: Path) -> None:
    """Take this library from now on: how a trial runs one that is not trusted yet."""
    global library
    loaded = _typed(ctypes.CDLL(str(path)))
    library = cache(lambda: loaded)


def _typed(loaded: ctypes.CDLL) -> ctypes.CDLL:
    for suffix in SUFFIX.values():
        room = getattr(loaded, f"room_{suffix}")
        room.argtypes, room.restype = [ctypes.POINTER(Call), ctypes.c_long], ctypes.c_long
        for name, tensors in (("forward", 11), ("backward", 15)):
            plain = [ctypes.POINTER(Call), *[ctypes.c_void_p] * tensors]
            factored = [ctypes.POINTER(FactorPointers), *plain]
            for kind, arguments in (("", plain), ("_factored", factored)):
                function = getattr(loaded, f"{name}{kind}_{suffix}")
                function.argtypes, function.restype = arguments, None
    return loaded


def tiling(dtype: torch.dtype) -> Tiling:
    """That of the loaded library."""
    loaded = library()
    assert loaded is not None
    return _tiling(loaded, SUFFIX[dtype])


@cache
def _tiling(loaded: ctypes.CDLL, suffix: str) -> Tiling:
    numbers = ctypes.c_long * len(Tiling._fields)
    return Tiling(*numbers.in_dll(loaded, f"tiling_{suffix}"))
