"""One layer, forward and backward, against torch's without noise, the loop and the limit."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import torch

from benchmarks.rivals import Problem, Size, can_pack, kernels_present
from benchmarks.timing import Comparison, compare

SIZES = [
    *(Size("LSTM", H, N) for H in (64, 256, 650, 1500) for N in (20, 80)),
    Size("LSTM", 64, 8, T=500),
    *(Size("GRU", H, N) for H in (256, 650) for N in (20, 80)),
    *(Size("RNN", H, N) for H in (256, 650) for N in (20, 80)),
]


def compare_layers(sizes: Iterable[Size] = SIZES, budget: float = 10.0) -> Iterator[Comparison]:
    """One comparison per size."""
    kernels = kernels_present()
    for size in sizes:
        problem = Problem(size)
        rivals = {"torch": problem.torch(), "gemms": problem.gemms(), "loop": problem.loop()}
        if can_pack():
            rivals["packed"] = problem.gemms(packed=True)
        rivals |= {kernel: problem.noisy(kernel) for kernel in kernels}
        yield compare(str(size), rivals, budget)


def main() -> None:
    """Print the ratios to torch, size by size: ``python -m benchmarks.layers [650 [20]]``."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    budget = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    torch.set_num_threads(2)
    for comparison in compare_layers([size for size in SIZES if wanted in str(size)], budget):
        told = ""
        for rival in list(comparison.rounds)[1:]:
            low, median, high = comparison.ratio(rival, "torch")
            told += f"  {rival} {median:.3f} [{low:.3f}, {high:.3f}]"
        milliseconds = 1e3 * comparison.spread("torch").median
        print(f"{comparison.case:>18}  torch {milliseconds:7.2f} ms{told}", flush=True)


if __name__ == "__main__":
    main()
