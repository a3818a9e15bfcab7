"""Try a freshly compiled kernel.

``python -m noisin.recurrent.kernels.trial LIBRARY`` exits with 0 if it is right and with 3 if it is
wrong.

Every cell, noise, kind of mask, direction and precision, with and without factors, forward and
backward, against the reference, and the LSTM with a projection. The shapes are those at the edges
of the tiles of the kernel, which states their sizes.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from noisin.recurrent.cell import KERNEL_CELLS, CellSpec
from noisin.recurrent.functional import Factors, Weights
from noisin.recurrent.kernels import build, compiled, layer, native, reference
from noisin.recurrent.kernels.compiled import Tiling
from noisin.recurrent.kernels.plan import Plan

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}
FEATURES = 3


def passes() -> bool:
    """Whether the loaded library reproduces the reference."""
    generator = torch.Generator().manual_seed(1111)
    return all(
        _agrees(Plan(cell, mode, sizes, reverse), H, P, masks, factored, dtype, generator)  # type: ignore[arg-type]
        for (cell, mode, reverse, masks, factored), dtype in itertools.product(_kinds(), TOLERANCE)
        for sizes, H, P in _shapes(
            compiled.tiling(dtype), cell, mode == "multiplicative" and reverse == factored
        )
    )


def _kinds() -> Iterator[tuple[CellSpec, str, bool, int, bool]]:
    """Every cell, noise and direction, with masks every cell and direction; factors backward.

    There is no mask, one, or one for each recurrent gate.
    """
    for cell, reverse in itertools.product(KERNEL_CELLS.values(), (False, True)):
        yield cell, "multiplicative", reverse, 0, False
        yield cell, "additive", reverse, 0, False
        if reverse:  # in which rows begin and end in mid-course
            yield cell, "multiplicative", reverse, int(cell.masks), True
        for masks in sorted({1, cell.recurrent}) if cell.masks else ():
            yield cell, "multiplicative", reverse, masks, False


def _shapes(
    tiling: Tiling, cell: CellSpec, wide: bool
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """The rows of each step, hidden units and those that they are projected to (0: none).

    They are at the edges of chunks, tiles, sums and blocks. A sum over all units is cut into pieces
    where there are more than a thousand of them, which takes long to try: so each machine code does
    it once (`wide`), and for the rest the sum over several gates, which is backward, is cut.
    """
    chunk, tall, low, near, block = tiling
    edges = {*range(1, 2 * low + 2), *range(chunk - tall, chunk + 2)}
    every, few = tuple(sorted(edges, reverse=True)), (tall + 1, tall, tall)
    yield every, block + 1, 0
    yield (tall + 1,), block + 1, 0
    cut = near + 1 if wide else near // 3 + 1  # 3 or 4 gates
    for H in (1, block // 2 - 1, block // 2 + 1, block, cut):
        yield few, H, 0
    if cell.name == "lstm":
        yield every, 2 * block + 1, block + 1
        for P in (1, block // 2 + 1, block, cut):
            yield few, P + 1, P


def _agrees(
    plan: Plan,
    H: int,
    P: int,
    masks: int,
    factored: bool,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> bool:
    cell, S, Z = plan.cell, sum(plan.sizes), P or H

    def draw(*shape: int) -> Tensor:
        value = torch.randn(shape, dtype=dtype, generator=generator)
        return value.div_(math.sqrt(shape[-1])).requires_grad_()

    rows = cell.recurrent * H
    weights = [draw(rows, FEATURES), draw(rows, Z), draw(rows), draw(rows)]
    weights += [draw(P, H)] if P else []
    x, eps = draw(S, FEATURES), draw(S, Z).detach()
    state = tuple(draw(plan.N, size) for size in (Z, H)[: 2 if cell.carry else 1])
    inputs = [x, *state, *weights]
    found = []
    mask = draw(S, masks * Z).detach() if masks else None
    widths = (Z, H if cell.memory else 0, H if cell.slots > 1 else 0)
    shapes = [(S, width) if factored and width else None for width in widths]
    factors = Factors(*(None if shape is None else draw(*shape).detach() for shape in shapes))
    given = (plan, x, eps, state, Weights(*weights), mask, factors)
    for z, final in (reference.run(*given), layer.run(*given, recurrence=native)):
        total = (z * z).sum() + sum((s * s).sum() for s in final)
        gradients = torch.autograd.grad(total, inputs)
        found.append([t.detach() for t in (z, *final, *gradients)])
    # The terms of a sum are of size 1, and their rounding remains where the sum itself cancels.
    return all(
        bool((a - b).abs().max() <= TOLERANCE[dtype] * max(1.0, float(a.abs().max())))
        for a, b in zip(*found, strict=True)
    )


if __name__ == "__main__":
    compiled.load(Path(sys.argv[1]))
    sys.exit(0 if passes() else build.WRONG)
