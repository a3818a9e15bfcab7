"""A noisy layer as one autograd function: the products of all steps at once, and a recurrence.

The input projection is one product, and so is each weight's gradient. What happens in between,
step by step, is the recurrence of :mod:`~.kernels.eager`, :mod:`~.kernels.native` or
:mod:`~.kernels.gpu`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from noisin._util import torch_state
from noisin.recurrent.functional import Factors, States, Weights
from noisin.recurrent.kernels import eager, masks, reference
from noisin.recurrent.kernels.plan import Plan
from noisin.recurrent.kernels.products import LAYER


def run(
    plan: Plan,
    x: Tensor,
    eps: Tensor,
    state: States,
    w: Weights,
    mask: Tensor | None = None,
    factors: Factors = Factors(),  # noqa: B008 - immutable
    x_mask: Tensor | None = None,
    *,
    recurrence: ModuleType,
) -> tuple[Tensor, States]:
    """All z as rows ``(S, H)`` and the final state, as :func:`.reference.run`."""
    inputs = joined(x, eps, state, w, mask, x_mask)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs):
        z, *carry = _LayerFunction.apply(plan, recurrence, factors, *inputs)  # type: ignore[no-untyped-call]
    else:
        z, *carry = forward(plan, recurrence, inputs, False, factors)[:2]
    return z, (plan.last(z), *carry[: len(state) - 1])


# The tensors of a layer, in the order of the operator's schema: x, eps, mask, z0, carry0, the five
# weights and x_mask. Those that a layer does not have are None.
Inputs = Sequence[Any]


def joined(
    x: Tensor,
    eps: Tensor,
    state: States,
    w: Weights,
    mask: Tensor | None,
    x_mask: Tensor | None = None,
) -> Inputs:
    """The tensors of a layer in one sequence."""
    return x, eps, mask, state[0], state[1] if len(state) > 1 else None, *w, x_mask


class _LayerFunction(torch.autograd.Function):
    """Without the dispatcher, which :mod:`~.kernels.operator` goes through; see there why."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, recurrence: ModuleType, factors: Factors, *inputs: Any
    ) -> Any:
        z, carry, gates, carries = forward(plan, recurrence, inputs, True, factors)
        ctx.save_for_backward(*inputs, *factors, gates, z, carries)
        ctx.plan, ctx.recurrence = plan, recurrence
        return (z,) if carry is None else (z, carry)

    @staticmethod
    def backward(ctx: Any, *d_outputs: Tensor) -> Any:
        *inputs, keep_h, keep_c, update, gates, z, carries = ctx.saved_tensors
        factors, needs, kept = (
            Factors(keep_h, keep_c, update),
            ctx.needs_input_grad[3:],
            (gates, z, carries),
        )
        if composes(d_outputs):
            found = composed(ctx.plan, inputs, needs, d_outputs, factors)
        else:
            found = backward(ctx.plan, ctx.recurrence, inputs, needs, kept, d_outputs, factors)
        return None, None, None, *found


def forward(
    plan: Plan,
    recurrence: ModuleType,
    inputs: Inputs,
    keep: bool,
    factors: Factors = Factors(),  # noqa: B008 - immutable
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """All z, the final carry, and what a backward needs: the activations and all carries."""
    x, eps, mask, z0, carry0, *weights, x_mask = inputs
    w, eps, z0 = Weights(*weights), eps.contiguous(), z0.contiguous()
    mask, x_mask = _contiguous(mask), _contiguous(x_mask)
    state = [z0] if carry0 is None else [z0, _copy(carry0)]
    gates, bias = _project(plan, x, w, x_mask), _bias(plan, w)
    z, carries = recurrence.forward(
        plan, gates, bias, w.w_hh.contiguous(), w.w_hr, eps, mask, state, keep,
        factors.map(Tensor.contiguous),
    )  # fmt: skip
    return z, state[1] if carry0 is not None else None, gates, carries


def backward(
    plan: Plan,
    recurrence: ModuleType,
    inputs: Inputs,
    needs: Sequence[bool],
    kept: tuple[Tensor, Tensor, Tensor | None],
    d_outputs: Sequence[Tensor],
    factors: Factors = Factors(),  # noqa: B008 - immutable
) -> list[Tensor | None]:
    """The gradients of all inputs from those of z and the carry; None where not needed."""
    (gates, z, carries), (x, eps, mask, z0, carry0, *weights, x_mask) = kept, inputs
    w, mask, x_mask = Weights(*weights), _contiguous(mask), _contiguous(x_mask)
    d_state = [_copy(z0).zero_(), *map(_copy, d_outputs[1:])]
    state = [s.contiguous() for s in (z0, carry0) if s is not None]
    d_gates, d_projected = recurrence.backward(
        plan, gates, w.w_hh.contiguous(), w.w_hr, eps.contiguous(), mask, state, z,
        carries, d_outputs[0].contiguous(), d_state, needs[3], factors.map(Tensor.contiguous),
    )  # fmt: skip
    d_x, *d_weights = _products(plan, needs, x, z, z0, mask, w, d_gates, x_mask)
    if d_projected is not None and carries is not None and needs[9]:
        H = w.w_hh.shape[0] // 4
        c = eager.candidates(plan, gates, state, carries, factors)
        d_weights[4] = d_projected.t() @ (gates[:, 3 * H :] * c.tanh())
    d_z0, d_carry0 = d_state if carry0 is not None else (d_state[0], None)
    return [d_x, None, None, d_z0 if needs[3] else None, d_carry0, *d_weights, None]


def _contiguous(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.contiguous()


def _copy(value: Tensor) -> Tensor:
    return value.clone(memory_format=torch.contiguous_format)


def composes(d_outputs: Sequence[Tensor]) -> bool:
    """Whether the gradients must be composed of torch's operations, by :func:`composed`.

    So it is for a second derivative, because the buffers have none, and for batches of gradients
    (``is_grads_batched``, a vmap over ``torch.autograd.grad``), which only torch can take apart.
    """
    return (
        torch.is_grad_enabled()
        or torch_state.transforming()
        or any(map(torch_state.batched_by_autograd, d_outputs))
    )


def composed(
    plan: Plan,
    inputs: Inputs,
    needs: Sequence[bool],
    d_outputs: Sequence[Tensor],
    factors: Factors = Factors(),  # noqa: B008 - immutable
) -> list[Tensor | None]:
    """The gradients by the reference, differentiable in turn if gradients are enabled."""
    # Views, so that one input that depends on another is not differentiated through it.
    with torch.enable_grad():
        views: list[Any] = [None if v is None else v.view_as(v) for v in inputs]
        x, eps, mask, z0, carry0, *weights, x_mask = views
        state = (z0,) if carry0 is None else (z0, carry0)
        z, final = reference.run(plan, x, eps, state, Weights(*weights), mask, factors, x_mask)
    needed = [k for k, need in enumerate(needs) if need]
    gradients = torch.autograd.grad(
        (z, *final[1:]),
        [views[k] for k in needed],
        d_outputs,
        create_graph=torch.is_grad_enabled(),
        allow_unused=True,
    )
    found = dict(zip(needed, gradients, strict=True))
    return [found.get(k) for k in range(len(inputs))]


def _project(plan: Plan, x: Tensor, w: Weights, x_mask: Tensor | None) -> Tensor:
    """The input's part of the gates of all steps, ``(S, slots · H)``; the bias is yet to come."""
    cell = plan.cell
    if x_mask is not None:
        return masks.project(x, x_mask, w.w_ih)
    if cell.inputs == cell.slots:
        return LAYER("input", x, w.w_ih.t())
    H = w.w_hh.shape[0] // cell.recurrent
    gates = x.new_empty(len(x), cell.slots * H)
    if len(plan.sizes) == 1:  # two products take less time than one and a copy of the weights
        torch.mm(x, w.w_ih[2 * H :].t(), out=gates[:, :H])
        torch.mm(x, w.w_ih[: 2 * H].t(), out=gates[:, H : 3 * H])
    else:
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
    needs: Sequence[bool],
    x: Tensor,
    z: Tensor,
    z0: Tensor,
    mask: Tensor | None,
    w: Weights,
    d: Tensor,
    x_mask: Tensor | None,
) -> list[Tensor | None]:
    """Gradients of x and of the weights from those of the gates: one product each."""
    cell = plan.cell
    H = w.w_hh.shape[0] // cell.recurrent
    gru = cell.inputs != cell.slots
    d_input, d_recurrent = d[:, : cell.inputs * H], d[:, -cell.recurrent * H :]
    need_x, _, _, _, _, need_ih, need_hh, need_b_ih, need_b_hh, *_ = needs
    d_x = None
    if need_x and x_mask is not None:
        d_x = masks.project_back(d_input, x_mask, w.w_ih)
    elif need_x:
        d_x = LAYER("back", d_input, _rolled(w.w_ih, H) if gru else w.w_ih)
    d_ih = _of_weights(d_input, x, x_mask) if need_ih else None
    d_hh = None
    if need_hh:
        rows = masks.of_all_steps(plan, mask) if plan.sizes[-1] < plan.N else mask
        d_hh = _of_weights(d_recurrent, plan.shift(z, z0), rows)
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


def _of_weights(d_gates: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """The gradient of the weights that multiply v, which the gates read through a mask."""
    if mask is None or not masks.per_gate(mask, v.shape[1]):
        return LAYER("weights", d_gates.t(), v if mask is None else masks.times(v, mask))
    return masks.of_weights(d_gates, v, mask)
