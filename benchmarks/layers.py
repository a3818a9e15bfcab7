"""One layer, forward and backward, against torch's without noise, the loop and the limit."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import torch

from benchmarks.rivals import Problem, Size, kernels_present
from benchmarks.timing import Comparison, compare

SIZES = [
    *(Size("LSTM", H, N) for H in (64, 256, 650, 1500) for N in (20, 80)),
    Size("LSTM", 64, 8, T=500),
    *(Size("GRU", H, N) for H in (256, 650) for N in (20, 80)),
    *(Size("RNN", H, N) for H in (256, 650) for N in (20, 80)),
]

CLEAN = [
    Size("GRU", 200, 20),
    Size("GRU", 650, 80),
    Size("GRU", 280, 8, T=500),
    Size("RNN", 256, 20),
    Size("RNN", 256, 80),
]


def compare_layers(sizes: Iterable[Size] = SIZES, budget: float = 10.0) -> Iterator[Comparison]:
    """One comparison per size."""
    kernels = kernels_present()
    for size in sizes:
        problem = Problem(size)
        rivals = {"torch": problem.torch(), "limit": problem.limit(), "loop": problem.loop()}
        rivals |= {kernel: problem.noisy(kernel) for kernel in kernels}
        yield compare(str(size), rivals, budget)


def compare_clean(sizes: Iterable[Size] = CLEAN, budget: float = 8.0) -> Iterator[Comparison]:
    """Layers that torch does not fuse, without noise, as training runs them: the C kernel."""
    for size in sizes:
        problem = Problem(size)
        rivals = {"torch": problem.torch()}
        if "c" in kernels_present():
            rivals["c"] = problem.clean()
        yield compare(f"without noise, {size}", rivals, budget)


def main(words: list[str]) -> None:
    """``python -m benchmarks.layers LSTM 650``: the sizes whose names have all these words."""
    torch.set_num_threads(2)
    for found in compare_layers([s for s in SIZES if all(word in str(s) for word in words)]):
        print(f"{found.case}, torch {1e3 * found.spread('torch').median:.2f} ms:", flush=True)
        for rival in found.rounds:
            low, median, high = found.ratio(rival, "torch")
            print(f"  {rival:8} {median:.3f} [{low:.3f}, {high:.3f}]", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
