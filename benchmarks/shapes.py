"""Shapes that training a language model does not have: one step, a projection, packed sequences,
both directions, and K noise samples, against torch's LSTM without noise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import noisin
from benchmarks.rivals import GAMMA, Size, kernels_present
from benchmarks.timing import Comparison, Rival, compare
from noisin import noise
from noisin.recurrent import kernels

ROWS = (1, 8, 100, 4096)
SAMPLES = 8
SAMPLED = Size("LSTM", 650, 20)


@dataclass(frozen=True)
class Shape:
    """A layer and its input; ``back`` is whether gradients are computed."""

    name: str
    size: Size
    options: dict[str, Any] = field(default_factory=dict)
    packed: bool = False
    back: bool = True

    def __str__(self) -> str:
        to = f" → {self.options['proj_size']}" if "proj_size" in self.options else ""
        return f"{self.name} of LSTM {self.size.H}{to} × {self.size.N}"


def shapes(H: int = 650, N: int = 20, T: int = 35, rows: Iterable[int] = ROWS) -> list[Shape]:
    """All of them, at one hidden size."""
    full = Size("LSTM", H, N, T)
    return [
        *(Shape("one step", Size("LSTM", H, n, 1), back=False) for n in rows),
        *(Shape("one step and back", Size("LSTM", H, n, 1)) for n in rows),
        Shape("projection", full, {"proj_size": H // 2}),
        Shape("packed sequences", full, packed=True),
        Shape("both directions", full, {"bidirectional": True}),
    ]


def compare_shapes(
    cases: Iterable[Shape] | None = None, samples: Size = SAMPLED, budget: float = 8.0
) -> Iterator[Comparison]:
    """One comparison per shape, and K = 8 samples over K = 1 in strong mode."""
    for shape in shapes() if cases is None else cases:
        yield compare(str(shape), rivals(shape), budget)
    yield compare(f"samples in strong mode of {samples}", sampled(samples), budget)


def rivals(shape: Shape) -> dict[str, Rival]:
    """Torch's layer and ours by each kernel, with the same weights."""
    torch.manual_seed(1111)
    H, x = shape.size.H, torch.randn(shape.size.T, shape.size.N, shape.size.H)
    input = packed(x) if shape.packed else x.requires_grad_(shape.back)
    theirs = nn.LSTM(H, H, **shape.options)
    ours = noisin.LSTM(H, H, noise=noise.Gaussian(GAMMA), **shape.options)
    ours.load_state_dict(theirs.state_dict())
    return {
        "torch": warned(step(theirs, input, shape.back)),
        **{kernel: by(kernel, step(ours, input, shape.back)) for kernel in kernels_present()},
    }


def packed(x: Tensor) -> PackedSequence:
    """Sequences of lengths from a seventh of T to T, in mixed order."""
    T, N = x.shape[:2]
    lengths = torch.linspace(max(1, T // 7), T, N).long()[torch.randperm(N)]
    return pack_padded_sequence(x, lengths, enforce_sorted=False)


def step(layer: nn.Module, input: Any, back: bool) -> Rival:
    """What sampling does with a layer, or, with gradients, what training does."""
    leaves = [t for t in (input, *layer.parameters()) if isinstance(t, Tensor) and t.requires_grad]

    def forward() -> None:
        with torch.no_grad():
            layer(input)

    def both() -> None:
        output = layer(input)[0]
        z = output.data if isinstance(output, PackedSequence) else output
        torch.autograd.grad(z, leaves, z.detach())

    return both if back else forward


def by(kernel: str, run: Callable[[], object]) -> Rival:
    """A rival with one of the kernels."""

    def chosen() -> None:
        with kernels.using(kernel):
            run()

    return chosen


def warned(run: Rival) -> Rival:
    """The same, after torch has warned once that its LSTM does not project by oneDNN."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run()
    return run


def sampled(size: Size) -> dict[str, Rival]:
    """K samples that share a recurrence, over one, and over K copies of the rows."""
    torch.manual_seed(1111)
    law = noise.Gaussian(GAMMA)
    layer = noisin.LSTM(size.H, size.H, noise=law, feedback=False, noisy_layers="last")
    x = torch.randn(size.T, size.N, size.H, requires_grad=True)
    leaves = [x, *layer.parameters()]

    def run(x: Tensor, K: int) -> None:
        z = layer(x, samples=K)[0]
        torch.autograd.grad(z, leaves, z.detach())

    return {
        "K = 1": lambda: run(x, 1),
        f"K = {SAMPLES}": lambda: run(x, SAMPLES),
        "copies": lambda: run(x.repeat(1, SAMPLES, 1), 1),
    }
