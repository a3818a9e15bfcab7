"""With the noise off, noisin's modules are torch's: what asking costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import nn

import noisin
from benchmarks.rivals import GAMMA, Problem, Size
from benchmarks.timing import Comparison, compare
from noisin import noise

SIZES = [Size("LSTM", 650, 80), Size("GRU", 650, 80), Size("RNN", 650, 80), Size("LSTM", 64, 20)]


def compare_evaluation(sizes: Iterable[Size] = SIZES, budget: float = 8.0) -> Iterator[Comparison]:
    """One comparison per size, in eval() and without gradients."""
    for size in sizes:
        problem = Problem(size)
        theirs = getattr(nn, size.cell)(size.H, size.H)
        ours = getattr(noisin, size.cell)(size.H, size.H, noise=noise.Gaussian(GAMMA))
        rivals = {"torch": forward(theirs, problem), "noisin": forward(ours, problem)}
        yield compare(f"evaluation of {size}", rivals, budget, most=101)


def forward(layer: nn.Module, problem: Problem) -> Callable[[], object]:
    """What an evaluation loop does with a layer."""
    layer.load_state_dict(problem.weights)
    layer.eval()

    def run() -> None:
        with torch.no_grad():
            layer(problem.x)

    return run
