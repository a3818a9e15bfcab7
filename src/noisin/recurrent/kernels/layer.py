"""A noisy layer as one autograd function: the products of all steps at once, and a recurrence.

The input projection is one product, and so is each weight's gradient. What happens in between,
step by step, is the recurrence of :mod:`~.kernels.eager` or :mod:`~.kernels.native`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from noisin.recurrent.functional import States, Weights
from noisin.recurrent.kernels import eager, native, reference
from noisin.recurrent.kernels.plan import Plan

# The product of many rows is a tenth faster in pieces of this many.
_ROWS = 512


def run(
    plan: Plan,
    x: Tensor,
    eps: Tensor,
    state: States,
    w: Weights,
    mask: Tensor | None = None,
    *,
    compiled: bool,
) -> tuple[Tensor, States]:
    """All z as rows ``(S, H)`` and the final state, as :func:`.reference.run`."""
    recurrence = native if compiled else eager
    keep = torch.is_grad_enabled()
    z, *carry = _LayerFunction.apply(  # type: ignore[no-untyped-call]
        plan, recurrence, keep, x, eps, mask, *_pair(state), *w
    )
    return z, (plan.last(z), *carry[: len(state) - 1])


def _pair(state: States) -> tuple[Tensor, Tensor | None]:
    return state[0], state[1] if len(state) > 1 else None


class _LayerFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Plan, recurrence: ModuleType, keep: bool, *inputs: Any) -> Any:
        x, eps, mask, z0, carry0, *weights = inputs
        w, eps, z0 = Weights(*weights), eps.contiguous(), z0.contiguous()
        mask = None if mask is None else mask.contiguous()
        state = [z0] if carry0 is None else [z0, _copy(carry0)]
        gates, bias = _project(plan, x, w), _bias(plan, w)
        z, carries = recurrence.forward(
            plan, gates, bias, w.w_hh.contiguous(), w.w_hr, eps, mask, state, keep
        )
        if keep:
            ctx.save_for_backward(*inputs, gates, z, carries)
            ctx.plan, ctx.recurrence = plan, recurrence
        return (z, *state[1:])

    @staticmethod
    def backward(ctx: Any, *d_outputs: Tensor) -> Any:
        *inputs, gates, z, carries = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is asked for, and the buffers have none
            return None, None, None, *_differentiable(ctx, inputs, d_outputs)
        x, eps, mask, z0, carry0, *weights = inputs
        w, mask = Weights(*weights), None if mask is None else mask.contiguous()
        d_state = [_copy(z0).zero_(), *map(_copy, d_outputs[1:])]
        state = [s.contiguous() for s in (z0, carry0) if s is not None]
        d_z = d_outputs[0].contiguous()
        d_gates, d_projected = ctx.recurrence.backward(
            ctx.plan, gates, w.w_hh.contiguous(), w.w_hr, eps.contiguous(), mask, state, z,
            carries, d_z, d_state,
        )  # fmt: skip
        needs = ctx.needs_input_grad[3:]
        d_x, *d_weights = _products(ctx.plan, needs, x, z, z0, mask, w, d_gates)
        if d_projected is not None and needs[9]:
            H = w.w_hh.shape[0] // 4
            d_weights[4] = d_projected.t() @ (gates[:, 3 * H :] * carries.tanh())
        d_z0, d_carry0 = d_state if carry0 is not None else (d_state[0], None)
        return None, None, None, d_x, None, None, d_z0, d_carry0, *d_weights


def _copy(value: Tensor) -> Tensor:
    return value.clone(memory_format=torch.contiguous_format)


def _differentiable(ctx: Any, inputs: list[Any], d_outputs: tuple[Tensor, ...]) -> list[Any]:
    """The gradients as a differentiable graph, computed by the reference."""
    # Views, so that one input that depends on another is not differentiated through it.
    views: list[Any] = [None if v is None else v.view_as(v) for v in inputs]
    x, eps, mask, z0, carry0, *weights = views
    state = (z0,) if carry0 is None else (z0, carry0)
    z, final = reference.run(ctx.plan, x, eps, state, Weights(*weights), mask)
    needed = [k for k, need in enumerate(ctx.needs_input_grad[3:]) if need]
    gradients = torch.autograd.grad(
        (z, *final[1:]),
        [views[k] for k in needed],
        d_outputs,
        create_graph=True,
        allow_unused=True,
    )
    found = dict(zip(needed, gradients, strict=True))
    return [found.get(k) for k in range(len(inputs))]


def _project(plan: Plan, x: Tensor, w: Weights) -> Tensor:
    """The input's part of the gates of all steps, ``(S, slots · H)``; the bias is yet to come."""
    cell = plan.cell
    if cell.inputs == cell.slots:
        return torch.mm(x, w.w_ih.t())
    H = w.w_hh.shape[0] // cell.recurrent
    gates = x.new_empty(len(x), cell.slots * H)
    torch.mm(x, _rolled(w.w_ih, H).t(), out=gates[:, : cell.inputs * H])
    return gates


def _bias(plan: Plan, w: Weights) -> Tensor | None:
    """The bias of all slots."""
    if w.b_ih is None or w.b_hh is None:
        return None
    cell = plan.cell
    if cell.inputs == cell.slots:
        return w.b_ih + w.b_hh
    H = len(w.b_hh) // cell.recurrent
    return torch.cat([w.b_ih[2 * H :], w.b_ih[: 2 * H] + w.b_hh[: 2 * H], w.b_hh[2 * H :]])


def _rolled(w: Tensor, H: int) -> Tensor:
    """A GRU's input weights in the order of the slots: torch has r, u, n and we n, r, u."""
    return w.roll(H, 0)


def _products(
    plan: Plan,
    needs: tuple[bool, ...],
    x: Tensor,
    z: Tensor,
    z0: Tensor,
    mask: Tensor | None,
    w: Weights,
    d: Tensor,
) -> list[Tensor | None]:
    """Gradients of x and of the weights from those of the gates: one product each."""
    cell = plan.cell
    H = w.w_hh.shape[0] // cell.recurrent
    gru = cell.inputs != cell.slots
    d_input, d_recurrent = d[:, : cell.inputs * H], d[:, -cell.recurrent * H :]
    need_x, _, _, _, _, need_ih, need_hh, need_b_ih, need_b_hh, _ = needs
    d_x = _by_rows(d_input, _rolled(w.w_ih, H) if gru else w.w_ih) if need_x else None
    d_ih = (x.t() @ d_input).t() if need_ih else None  # faster than its transpose
    d_hh = None
    if need_hh:
        read = plan.shift(z, z0)  # a copy
        d_hh = ((read if mask is None else read.mul_(mask)).t() @ d_recurrent).t()
    d_b_ih = d_b_hh = None
    if need_b_ih or need_b_hh:
        d_b = d.sum(0)
        # Separate memory for each, because .grad is scaled and accumulated in place.
        d_b_ih, d_b_hh = d_b[: cell.inputs * H], d_b[-cell.recurrent * H :].clone()
    if gru and d_ih is not None:
        d_ih = d_ih.roll(-H, 0)
    if gru and d_b_ih is not None:
        d_b_ih = d_b_ih.roll(-H, 0)
    return [d_x, d_ih, d_hh, d_b_ih if need_b_ih else None, d_b_hh if need_b_hh else None, None]


def _by_rows(a: Tensor, b: Tensor) -> Tensor:
    product = a.new_empty(len(a), b.shape[1])
    for rows, out in zip(torch.split(a, _ROWS), torch.split(product, _ROWS), strict=True):
        torch.mm(rows, b, out=out)
    return product
