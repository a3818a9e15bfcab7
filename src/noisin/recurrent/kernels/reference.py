"""The reference: Algorithm 1 as a loop of differentiable torch operations.

Right under every transform of torch, and slow. The kernels must reproduce it; where one cannot run
(second derivatives, ``torch.func``, ``torch.compile``), this does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from noisin.recurrent import functional
from noisin.recurrent.functional import States, Weights
from noisin.recurrent.kernels.plan import CELLS, Plan


def run(plan: Plan, x: Tensor, eps: Tensor, state: States, w: Weights) -> tuple[Tensor, States]:
    """All z as rows ``(S, H)``, and the final state: ``(z,)`` or ``(z, carry)``."""
    sizes = list(plan.sizes)
    step = functional.noisy(transition(plan.cell, w), torch.split(eps, sizes), plan.mode)
    zs, final = functional.scan(step, torch.split(w.project(x), sizes), state, plan.reverse)
    return torch.cat(zs), final


def transition(cell: str, w: Weights) -> Callable[[Tensor, States], States]:
    """The transition function of a cell: clean state from gates and state."""
    if cell == "lstm":
        return partial(functional.lstm, w=w)
    if CELLS[cell].slots == 4:
        return partial(functional.gru, w=w)
    return partial(functional.elman, w=w, activation=cell)
