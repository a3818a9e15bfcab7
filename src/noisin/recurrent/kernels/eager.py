r"""The recurrence of a layer in plain torch operations, forward and backward, without a graph.

Forward, the gates of all steps come as one product of the input; each step adds its recurrent
product to them in place and turns them into activations. Backward, the derivative of every gate is
a factor that depends on activations alone, computed for all steps at once; the loop only multiplies
by what flows back in time:

- Elman: ``d gates = d_h · s'``;
- LSTM: ``d_c += d_h · o (1 - tanh² c)`` and ``d i, f, g = d_c · factor``, ``d o = d_h · factor``;
- GRU: ``d n, r, u, m = d_h · factor``, and ``d_h · u`` flows along the carry.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from noisin.recurrent.cell import CellSpec
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
    for i, t in enumerate(plan.order):
        rows, n = plan.rows(t), plan.sizes[t]
        gate, before = gates[rows], plan.before(i, z, z0)
        read = before if mask is None else before * mask[rows]
        gate[:, -cell.recurrent * H :].addmm_(read, w_hh.t())
        h = _activate(plan.cell, gate, before if carry is None else carry[:n], H)
        if carries is not None:
            carries[rows] = carry[:n]  # type: ignore[index]
        if w_hr is not None:
            h = F.linear(h, w_hr)
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


def _activate(cell: CellSpec, gate: Tensor, carry: Tensor, H: int) -> Tensor:
    """Gates to activations, in place; the carry to the next one, in place; returns h."""
    if cell.name == "lstm":
        gate[:, : 2 * H].sigmoid_()
        i, f, g, o = gate.chunk(4, dim=1)
        g.tanh_()
        o.sigmoid_()
        carry.mul_(f).addcmul_(i, g)
        return carry.tanh().mul_(o)
    if cell.name == "gru":
        n, r, u, m = gate.chunk(4, dim=1)
        gate[:, H : 3 * H].sigmoid_()
        n.addcmul_(r, m).tanh_()
        h = torch.lerp(n, carry, u)
        return carry.copy_(h) if cell.carry else h
    return getattr(gate, f"{cell.arguments['nonlinearity']}_")()  # type: ignore[no-any-return]


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
) -> tuple[Tensor, Tensor | None]:
    """Gradients of the gates and, with a projection, of its output, from those of z.

    ``d_state`` contains the gradients of the final state, and afterwards those of the initial one,
    that of z only if it is needed.
    """
    cell = plan.cell
    H = w_hh.shape[0] // cell.recurrent
    d_before, d_carry = d_state[0], d_state[1] if cell.carry else None
    d_gates, to_carry = _factors(plan, gates, state, z, carries, H)
    d_projected = None if w_hr is None else torch.empty_like(z)
    for t in reversed(plan.order):
        rows, n = plan.rows(t), plan.sizes[t]
        d_h = d_z[rows] + d_before[:n]
        if plan.mode == "multiplicative":
            d_h.addcmul_(d_h, eps[rows])
        if d_projected is not None and w_hr is not None:
            d_projected[rows] = d_h
            d_h = d_h @ w_hr
        gate = d_gates[rows].view(n, cell.slots, H)
        if cell.name == "lstm":
            d_c = d_carry[:n].addcmul_(d_h, to_carry[rows])  # type: ignore[index]
            gate[:, :3].mul_(d_c.unsqueeze(1))
            gate[:, 3].mul_(d_h)
            d_c.mul_(gates[rows, H : 2 * H])
        else:
            if d_carry is not None:
                d_h.add_(d_carry[:n])
            gate.mul_(d_h.unsqueeze(1))
            if d_carry is not None:
                torch.mul(d_h, gates[rows, 2 * H : 3 * H], out=d_carry[:n])
        if t == plan.order[0] and not need_z0:
            break
        recurrent = d_gates[rows, -cell.recurrent * H :]
        torch.mm(recurrent, w_hh, out=d_before[:n])
        if mask is not None:
            d_before[:n].mul_(mask[rows])
        if cell.name == "gru" and not cell.carry:
            d_before[:n].addcmul_(d_h, gates[rows, 2 * H : 3 * H])
    return d_gates, d_projected


def _factors(
    plan: Plan, gates: Tensor, state: list[Tensor], z: Tensor, carries: Tensor | None, H: int
) -> tuple[Tensor, Tensor]:
    """The derivatives of all gates up to what flows back, and of c by h for the LSTM."""
    if len(gates[0]) == H:
        return _slope(plan.cell.arguments["nonlinearity"], gates), gates
    factors = torch.empty_like(gates)
    if plan.cell.name == "lstm" and carries is not None:
        i, f, g, o = gates.chunk(4, dim=1)
        f_i, f_f, f_g, f_o = factors.chunk(4, dim=1)
        squashed = carries.tanh()
        _sigmoid_backward.grad_input(g, i, grad_input=f_i)
        _sigmoid_backward.grad_input(plan.shift(carries, state[1]), f, grad_input=f_f)
        _tanh_backward.grad_input(i, g, grad_input=f_g)
        _sigmoid_backward.grad_input(squashed, o, grad_input=f_o)
        return factors, _tanh_backward(o, squashed)
    n, r, u, m = gates.chunk(4, dim=1)
    f_n, f_r, f_u, f_m = factors.chunk(4, dim=1)
    before = plan.shift(z, state[0]) if carries is None else plan.shift(carries, state[1])
    _tanh_backward.grad_input(1 - u, n, grad_input=f_n)
    torch.mul(f_n, r, out=f_m)
    _sigmoid_backward.grad_input(f_n * m, r, grad_input=f_r)
    _sigmoid_backward.grad_input(before.sub_(n), u, grad_input=f_u)
    return factors, gates


def _slope(activation: str, h: Tensor) -> Tensor:
    if activation == "relu":
        return (h > 0).to(h.dtype)
    return 1 - h * h if activation == "tanh" else h * (1 - h)
