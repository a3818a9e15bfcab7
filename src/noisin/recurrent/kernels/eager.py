r"""The recurrence of a layer in plain torch operations, forward and backward, without a graph.

Forward, the gates of all steps come as one product of the input; each step adds its recurrent
product to them in place and turns them into activations. Backward, the derivative of every gate is
a factor that depends on activations alone, computed for all steps at once; the loop only multiplies
by what flows back in time:

- Elman: ``d gates = d_h · s'``;
- LSTM: ``d_c += d_h · o (1 - tanh² c)`` and ``d i, f, g = d_c · factor``, ``d o = d_h · factor``;
- GRU: ``d n, r, u, m = d_h · factor``, and ``d_h · u`` flows along the carry.

Where a factor k keeps some of an old value, ``k`` of the gradient flows past the step and ``1 - k``
of it through the step.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from noisin.recurrent.cell import CellSpec
from noisin.recurrent.functional import Factors
from noisin.recurrent.kernels import masks
from noisin.recurrent.kernels.plan import Plan

_sigmoid_backward = torch.ops.aten.sigmoid_backward
_tanh_backward = torch.ops.aten.tanh_backward


def forward(
    plan: Plan,
    gates: Tensor,
    bias: Tensor | None,
    w_hh: Tensor,
    w_hr: Tensor | None,
    eps: Tensor,
    mask: Tensor | None,
    state: list[Tensor],
    keep: bool,
    factors: Factors = Factors(),  # noqa: B008 - immutable
) -> tuple[Tensor, Tensor | None]:
    """Run the recurrence. The gates become activations, ``state[1]`` the final carry.

    Returns z and, where the cell has one and it is to be kept, the carry of all steps, as rows.
    """
    cell = plan.cell
    z0, carry = state[0], state[1] if cell.carry else None
    H = w_hh.shape[0] // cell.recurrent
    z = torch.empty_like(eps)
    carries = None if carry is None or not keep else gates.new_empty(len(gates), H)
    _add_bias(gates, bias, cell.inputs * H)
    here, factored = factors, bool(factors.given)
    for i, t in enumerate(plan.order):
        rows, n = plan.rows(t), plan.sizes[t]
        gate, before = gates[rows], plan.before(i, z, z0)
        masks.multiply(gate[:, -cell.recurrent * H :], before, masks.at(plan, mask, t), w_hh)
        if factored:
            here = factors.at(rows)
        old = carry[:n].clone() if carry is not None and factored else None
        h = _activate(plan.cell, gate, before if carry is None else carry[:n], H, here.update)
        if w_hr is not None:
            h = F.linear(h, w_hr)
        if factored:
            h = _hold(cell, here, h, before, old, carry)
        if carries is not None:
            carries[rows] = carry[:n]  # type: ignore[index]
        if plan.mode == "additive":
            torch.add(h, eps[rows], out=z[rows])
        else:
            torch.mul(h, 1 + eps[rows], out=z[rows])
    return z, carries


def _add_bias(gates: Tensor, bias: Tensor | None, inputs: int) -> None:
    """To the slots that the input has filled, and as the start of those that it has not."""
    gates[:, inputs:] = 0
    if bias is not None:
        gates.add_(bias)


def _activate(
    cell: CellSpec, gate: Tensor, carry: Tensor, H: int, update: Tensor | None = None
) -> Tensor:
    """Gates to activations, in place; the carry to the next one, in place; returns h."""
    if cell.name == "lstm":
        gate[:, : 2 * H].sigmoid_()
        i, f, g, o = gate.chunk(4, dim=1)
        g.tanh_()
        o.sigmoid_()
        carry.mul_(f).addcmul_(i, g if update is None else g * update)
        return carry.tanh().mul_(o)
    if cell.name == "gru":
        n, r, u, m = gate.chunk(4, dim=1)
        gate[:, H : 3 * H].sigmoid_()
        n.addcmul_(r, m).tanh_()
        h = torch.lerp(n if update is None else n * update, carry, u)
        return carry.copy_(h) if cell.carry else h
    return getattr(gate, f"{cell.arguments['nonlinearity']}_")()  # type: ignore[no-any-return]


def _hold(
    cell: CellSpec,
    factors: Factors,
    h: Tensor,
    before: Tensor,
    old: Tensor | None,
    carry: Tensor | None,
) -> Tensor:
    """Keep some of the carry, in place, and of h, of the z before or a GRU's carry."""
    if factors.keep_h is not None:
        h = torch.lerp(h, before if old is None or cell.memory else old, factors.keep_h)
    if carry is not None and old is not None:
        if not cell.memory:
            carry[: len(h)] = h
        elif factors.keep_c is not None:
            carry[: len(h)].lerp_(old, factors.keep_c)
    return h


def backward(
    plan: Plan,
    gates: Tensor,
    w_hh: Tensor,
    w_hr: Tensor | None,
    eps: Tensor,
    mask: Tensor | None,
    state: list[Tensor],
    z: Tensor,
    carries: Tensor | None,
    d_z: Tensor,
    d_state: list[Tensor],
    need_z0: bool = True,
    factors: Factors = Factors(),  # noqa: B008 - immutable
) -> tuple[Tensor, Tensor | None]:
    """Gradients of the gates and, with a projection, of its output, from those of z.

    ``d_state`` contains the gradients of the final state, and afterwards those of the initial one,
    that of z only if it is needed.
    """
    cell = plan.cell
    H = w_hh.shape[0] // cell.recurrent
    d_before, d_carry = d_state[0], d_state[1] if cell.carry else None
    d_gates, to_carry = _slopes(plan, gates, state, z, carries, H, factors)
    d_projected = None if w_hr is None else torch.empty_like(z)
    for t in reversed(plan.order):
        rows, n = plan.rows(t), plan.sizes[t]
        d_h = d_z[rows] + d_before[:n]
        if plan.mode == "multiplicative":
            d_h.addcmul_(d_h, eps[rows])
        if d_carry is not None and not cell.memory:
            d_h.add_(d_carry[:n])
        past_h = _past(d_h, factors.keep_h, rows)
        if d_projected is not None and w_hr is not None:
            d_projected[rows] = d_h
            d_h = d_h @ w_hr
        gate = d_gates[rows].view(n, cell.slots, H)
        if cell.name == "lstm":
            d_c = d_carry[:n]  # type: ignore[index]
            past_c = _past(d_c, factors.keep_c, rows)
            d_c.addcmul_(d_h, to_carry[rows])
            gate[:, :3].mul_(d_c.unsqueeze(1))
            gate[:, 3].mul_(d_h)
            d_c.mul_(gates[rows, H : 2 * H])
            _add(d_c, past_c)
        else:
            gate.mul_(d_h.unsqueeze(1))
            if d_carry is not None:
                torch.mul(d_h, gates[rows, 2 * H : 3 * H], out=d_carry[:n])
                _add(d_carry[:n], past_h)
        if t == plan.order[0] and not need_z0:
            break
        recurrent = d_gates[rows, -cell.recurrent * H :]
        masks.multiply_back(recurrent, masks.at(plan, mask, t), w_hh, out=d_before[:n])
        if cell.name == "gru" and not cell.carry:
            d_before[:n].addcmul_(d_h, gates[rows, 2 * H : 3 * H])
        if cell.memory or d_carry is None:
            _add(d_before[:n], past_h)
    return d_gates, d_projected


def _past(d: Tensor, keep: Tensor | None, rows: slice) -> Tensor | None:
    """The part of a gradient that flows past a step, taken from it in place."""
    if keep is None:
        return None
    past = d * keep[rows]
    d.sub_(past)
    return past


def _add(d: Tensor, past: Tensor | None) -> None:
    if past is not None:
        d.add_(past)


def candidates(
    plan: Plan, gates: Tensor, state: list[Tensor], carries: Tensor, factors: Factors
) -> Tensor:
    """An LSTM's c of all steps before some of the old one was kept: ``f c + i g``."""
    if factors.keep_c is None:
        return carries
    i, f, g, _ = gates.chunk(4, dim=1)
    c = plan.shift(carries, state[1]).mul_(f)
    return c.addcmul_(i, g if factors.update is None else g * factors.update)


def _slopes(
    plan: Plan,
    gates: Tensor,
    state: list[Tensor],
    z: Tensor,
    carries: Tensor | None,
    H: int,
    factors: Factors,
) -> tuple[Tensor, Tensor]:
    """The derivatives of all gates up to what flows back, and of c by h for the LSTM."""
    if len(gates[0]) == H:
        return _slope(plan.cell.arguments["nonlinearity"], gates), gates
    slopes, update = torch.empty_like(gates), factors.update
    if plan.cell.name == "lstm" and carries is not None:
        i, f, g, o = gates.chunk(4, dim=1)
        f_i, f_f, f_g, f_o = slopes.chunk(4, dim=1)
        squashed = candidates(plan, gates, state, carries, factors).tanh()
        i_m, g_m = (i, g) if update is None else (i * update, g * update)
        _sigmoid_backward.grad_input(g_m, i, grad_input=f_i)
        _sigmoid_backward.grad_input(plan.shift(carries, state[1]), f, grad_input=f_f)
        _tanh_backward.grad_input(i_m, g, grad_input=f_g)
        _sigmoid_backward.grad_input(squashed, o, grad_input=f_o)
        return slopes, _tanh_backward(o, squashed)
    n, r, u, m = gates.chunk(4, dim=1)
    f_n, f_r, f_u, f_m = slopes.chunk(4, dim=1)
    before = plan.shift(z, state[0]) if carries is None else plan.shift(carries, state[1])
    _tanh_backward.grad_input(1 - u if update is None else (1 - u) * update, n, grad_input=f_n)
    torch.mul(f_n, r, out=f_m)
    _sigmoid_backward.grad_input(f_n * m, r, grad_input=f_r)
    before.sub_(n if update is None else n * update)
    _sigmoid_backward.grad_input(before, u, grad_input=f_u)
    return slopes, gates


def _slope(activation: str, h: Tensor) -> Tensor:
    if activation == "relu":
        return (h > 0).to(h.dtype)
    return 1 - h * h if activation == "tanh" else h * (1 - h)
