"""Which kernel runs: the choice in force, and the recurrence for given tensors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Literal

from torch import Tensor

from noisin._util import checks, torch_state
from noisin.recurrent.kernels import compiled, eager, gpu, native

CHOICES = ("auto", "c", "eager", "reference", "triton")
# What runs a layer step by step; all have the functions `forward` and `backward` of `eager`.
RECURRENCES: Mapping[str, ModuleType] = {"c": native, "eager": eager, "triton": gpu}
_chosen: ContextVar[str | None] = ContextVar("noisin_kernel", default=None)
# Which of our kernels runs layers without noise too, instead of torch's.
_everywhere: ContextVar[str | None] = ContextVar("noisin_kernel_everywhere", default=None)


def chosen() -> str:
    """The choice in force: that of :func:`using`, else of ``NOISIN_KERNEL``, else ``auto``."""
    choice = _chosen.get()
    if choice is None:
        choice = os.environ.get("NOISIN_KERNEL", "auto")
        checks.one_of("NOISIN_KERNEL", choice, CHOICES)
    return choice


# To torch.compile the choice is a constant, because it cannot trace a ContextVar. This is what
# torch.compiler.assume_constant_result does, without importing the compiler.
chosen._dynamo_marked_constant = True  # type: ignore[attr-defined]


@contextmanager
def using(kernel: str) -> Iterator[None]:
    """Context manager: choose the kernel.

    >>> with using("eager"):
    ...     chosen()
    'eager'
    """
    checks.one_of("kernels.using", kernel, CHOICES)
    token = _chosen.set(kernel)
    try:
        yield
    finally:
        _chosen.reset(token)


def replaces_torch(fused: bool) -> bool:
    """Whether layers without noise run by our kernels too, and not by torch's.

    Args:
        fused: whether torch has a kernel for all steps of such a layer on a CPU.
    """
    if _everywhere.get() == "c":
        return not fused and chosen() in ("auto", "c") and compiled.library() is not None
    return _everywhere.get() is not None


replaces_torch._dynamo_marked_constant = True  # type: ignore[attr-defined]


@contextmanager
def everywhere(kernel: Literal["any", "c"] = "any") -> Iterator[None]:
    """Context manager: run layers without noise by our kernels too, not by torch's.

    The results are equal up to rounding. On a CPU, torch composes GRU and Elman layers of single
    operations, and records every one of every step. Its LSTM is fused, but lays out its weights
    anew in every call: with gradients and few rows and steps, that takes longer than the
    recurrence.

    Args:
        kernel: ``"c"`` for the C kernel alone, where it runs, instead of layers that are composed.
    """
    checks.one_of("kernels.everywhere", kernel, ("any", "c"))
    token = _everywhere.set(kernel)
    try:
        yield
    finally:
        _everywhere.reset(token)


def recurrence_for(x: Tensor, factored: bool = False) -> str:
    """Which of the recurrences runs a layer with this input, by name.

    Triton's has no factors on the transition, nor a mask for each gate (``factored``): with them,
    the eager one runs.
    """
    if torch_state.dispatching():
        return "eager"
    choice, interpreted = chosen(), x.device.type == "cpu"
    # Triton's interpreter is slow, and so runs only where it was asked for by name.
    by_triton = choice == "triton" or (choice == "auto" and not interpreted)
    if by_triton and not factored and gpu.runs(x):
        return "triton"
    return "c" if choice in ("auto", "c") and native.runs(x) else "eager"
