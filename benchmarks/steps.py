"""A training step of a tied language model, and the memory it takes, against a plain one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from benchmarks import memory
from benchmarks.models import Shape, noisy_step, plain_step
from benchmarks.rivals import kernels_present
from benchmarks.timing import Comparison, compare

SHAPES = [Shape(O=10_000), Shape(O=33_278)]
SMALL = Shape(O=1_000, H=64, N=20)


def compare_steps(shapes: Iterable[Shape] = SHAPES, budget: float = 25.0) -> Iterator[Comparison]:
    """One comparison per vocabulary."""
    for shape in shapes:
        rivals = {"plain": plain_step(shape)}
        rivals |= {kernel: noisy_step(shape, kernel) for kernel in kernels_present()}
        yield compare(f"training step, vocabulary {shape.O:,}", rivals, budget)


def compare_memory(
    shapes: Iterable[Shape] = SHAPES, steps: int = 3, runs: int = 2
) -> Iterator[Comparison]:
    """Peak memory of some steps, per vocabulary, in fresh processes that alternate."""
    for shape in shapes:
        rivals = {"plain": ("plain", "auto")} | {k: ("noisin", k) for k in kernels_present()}
        peaks: dict[str, list[float]] = {name: [] for name in rivals}
        for _ in range(runs):
            for name, (rival, kernel) in rivals.items():
                peaks[name] += memory.peaks(rival, shape, [steps], kernel)
        yield Comparison(f"peak memory, vocabulary {shape.O:,}", peaks, unit="B")


def compare_endurance(
    shape: Shape = SMALL, steps: tuple[int, int, int] = (200, 2_000, 6_000)
) -> Iterator[Comparison]:
    """Whether training for long takes more memory than training for a while.

    The first comparison is of what the program itself uses. The others contain what the allocator
    keeps, which grows for a while in a plain torch model too: see :mod:`benchmarks.memory`.
    """
    measures = {
        "peak memory in use over the steps": (memory.live_peaks, "noisin"),
        "peak memory over the steps": (memory.peaks, "noisin"),
        "peak memory over the steps, plain": (memory.peaks, "plain"),
    }
    for case, (measure, rival) in measures.items():
        found = measure(rival, shape, list(steps))
        rounds = {f"after {n:,}": [float(peak)] for n, peak in zip(steps, found, strict=True)}
        yield Comparison(case, rounds, unit="B")
