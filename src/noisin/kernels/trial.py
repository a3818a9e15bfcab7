"""Try a freshly compiled kernel: ``python -m noisin.kernels.trial LIBRARY`` exits 0 if it is right.

Every cell, noise, direction and precision, over full and ragged batches, forward and backward,
against the reference.
"""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path

import torch
from torch import Tensor

from noisin.functional import Weights
from noisin.kernels import layer, native, reference
from noisin.kernels.plan import CELLS, Plan

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}
FEATURES, UNITS = 3, 37  # no multiple of any vector length


def passes() -> bool:
    """Whether the loaded library reproduces the reference."""
    generator = torch.Generator().manual_seed(1111)
    plans = itertools.product(
        CELLS, ("multiplicative", "additive"), ((7, 7, 7), (100, 9, 9, 1)), (False, True)
    )
    return all(
        _agrees(Plan(cell, mode, sizes, reverse), dtype, generator)  # type: ignore[arg-type]
        for (cell, mode, sizes, reverse), dtype in itertools.product(plans, TOLERANCE)
    )


def _agrees(plan: Plan, dtype: torch.dtype, generator: torch.Generator) -> bool:
    cell, H, S = CELLS[plan.cell], UNITS, sum(plan.sizes)

    def draw(*shape: int) -> Tensor:
        value = torch.randn(shape, dtype=dtype, generator=generator)
        return value.div_(math.sqrt(shape[-1])).requires_grad_()

    rows = cell.recurrent * H
    weights = [draw(rows, FEATURES), draw(rows, H), draw(rows), draw(rows)]
    x, eps = draw(S, FEATURES), draw(S, H).detach()
    state = tuple(draw(plan.N, H) for _ in range(2 if cell.carry else 1))
    inputs = [x, *state, *weights]
    found = []
    given = (plan, x, eps, state, Weights(*weights))
    for z, final in (reference.run(*given), layer.run(*given, compiled=True)):
        total = (z * z).sum() + sum((s * s).sum() for s in final)
        gradients = torch.autograd.grad(total, inputs)
        found.append([z, *final, *gradients])
    return all(
        torch.allclose(a, b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * float(a.abs().max()))
        for a, b in zip(*found, strict=True)
    )


if __name__ == "__main__":
    native.load(Path(sys.argv[1]))
    sys.exit(0 if passes() else 1)
