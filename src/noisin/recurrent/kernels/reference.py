"""The reference: Algorithm 1 as a loop of differentiable torch operations.

Right under every transform of torch, and slow. The kernels must reproduce it; where one cannot run
(second derivatives, batches of gradients, ``torch.func``), this does.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from noisin.recurrent import functional
from noisin.recurrent.functional import Factors, States, Weights
from noisin.recurrent.kernels import masks
from noisin.recurrent.kernels.plan import Plan


def run(
    plan: Plan,
    x: Tensor,
    eps: Tensor,
    state: States,
    w: Weights,
    mask: Tensor | None = None,
    factors: Factors = Factors(),  # noqa: B008 - immutable
    x_mask: Tensor | None = None,
) -> tuple[Tensor, States]:
    """All z as rows ``(S, H)``, and the final state: ``(z,)`` or ``(z, carry)``."""
    sizes = list(plan.sizes)
    assert plan.cell.step is not None
    transition = partial(plan.cell.step, w=w)
    mask, x_mask = (masks.of_all_steps(plan, given) for given in (mask, x_mask))
    by_step = None if mask is None else torch.split(mask, sizes)
    step = functional.noisy(
        transition, torch.split(eps, sizes), plan.mode, by_step,
        factors.steps(sizes) if factors.given else None, plan.cell.memory,
    )  # fmt: skip
    read = x if x_mask is None else functional.masked(x, x_mask)
    zs, final = functional.scan(step, torch.split(w.project(read), sizes), state, plan.reverse)
    return torch.cat(zs), final
