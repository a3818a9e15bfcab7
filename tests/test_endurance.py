"""Training for long uses no more memory than training for a while.

``python -m benchmarks endurance`` measures the peak over 6,000 steps. Here it is what remains after
a step, which can be counted exactly: the bytes that malloc has handed out, and Python's objects.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

import pytest
import torch

from benchmarks.models import Shape, noisy_step
from benchmarks.rivals import kernels_present

SHAPE = Shape(O=50, H=8, N=2, T=3)
STEPS = 100
# Tables that grow once leave up to 25 bytes per step, of plain torch too; a tensor takes some 500.
BYTES = 200


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    )  # fmt: skip


def remaining(step: Callable[[], None]) -> tuple[float, float]:
    """Bytes and objects per step that remain of some steps after the first ones."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _Mallinfo

    def held() -> tuple[int, int]:
        gc.collect()
        objects = len(gc.get_objects())
        info = mallinfo2()
        return info.uordblks + info.hblkhd, objects

    for _ in range(20):
        step()
    held()
    n, objects = held()
    for _ in range(STEPS):
        step()
    m, more = held()
    return (m - n) / STEPS, (more - objects) / STEPS


needs_glibc = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33 to count bytes in use"
)


@needs_glibc
@pytest.mark.parametrize("kernel", ["c", "eager", "reference"])
def test_nothing_remains_of_a_training_step(kernel: str) -> None:
    if kernel not in (*kernels_present(), "reference"):
        pytest.skip("there is no such kernel")
    number, objects = remaining(noisy_step(SHAPE, kernel))
    assert abs(number) < BYTES
    assert objects < 0.5  # a cache of torch may grow by one now and then


@needs_glibc
def test_a_tensor_that_remains_is_seen() -> None:
    step, kept = noisy_step(SHAPE), []

    def leaking() -> None:
        step()
        kept.append(torch.zeros(1))

    number, objects = remaining(leaking)
    assert number > BYTES
    assert objects == pytest.approx(1.0, abs=0.5)
