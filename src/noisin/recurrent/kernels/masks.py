"""Products with what gates read of rows v through masks: ``(v * m) w'``, and back.

There is no mask, or one for all gates, with the columns of v, or one for each of the R gates, which
follow one another in R times as many columns, in the order of the weights w, ``(R · H, ·)``. Masks
that are held, the same at all steps, have the N rows of one step.

Where each gate has a mask of its own, its product of all steps is that of C wherever C runs: any
other reads R masked copies of v, which together with the product takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from noisin.recurrent.kernels import gemm
from noisin.recurrent.kernels.plan import Plan

Product = Callable[..., Tensor]  # of two, as torch.mm
AddProduct = Callable[[Tensor, Tensor, Tensor], Tensor]  # of the last two to the first, in place


def per_gate(mask: Tensor | None, columns: int) -> bool:
    """Whether each gate has a mask of its own."""
    return mask is not None and mask.shape[-1] != columns


def at(plan: Plan, mask: Tensor | None, t: int) -> Tensor | None:
    """The rows of a step."""
    if mask is None:
        return None
    return mask[: plan.sizes[t]] if is_held(plan, mask) else mask[plan.rows(t)]


def of_all_steps(plan: Plan, mask: Tensor | None) -> Tensor | None:
    """The rows of all steps, of a mask that may be held."""
    if mask is None or not is_held(plan, mask):
        return mask
    return torch.cat([mask[:n] for n in plan.sizes])


def is_held(plan: Plan, mask: Tensor) -> bool:
    """Whether it is the same at all steps."""
    return len(plan.sizes) > 1 and len(mask) == plan.N


def times(v: Tensor, mask: Tensor) -> Tensor:
    """``v * m``, of all steps or of one; where a mask is held, all steps have as many rows."""
    return v * mask if len(v) == len(mask) else (v.view(-1, *mask.shape) * mask).flatten(0, 1)


def by_gate(mask: Tensor, columns: int, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The mask of each gate and its columns of other matrices."""
    R = mask.shape[-1] // columns
    return zip(*(matrix.chunk(R, 1) for matrix in (mask, *others)), strict=True)


def multiply(
    gates: Tensor,
    v: Tensor,
    mask: Tensor | None,
    w: Tensor,
    add: AddProduct = Tensor.addmm_,
) -> None:
    """Add the products to the gates, ``(N, R · H)``, in place.

    >>> gates, v, w = torch.zeros(1, 2), torch.tensor([[1.0, 2.0]]), torch.ones(2, 2)
    >>> multiply(gates, v, torch.tensor([[1.0, 0.0, 0.0, 3.0]]), w)
    >>> gates
    tensor([[1., 6.]])
    """
    if mask is None or not per_gate(mask, v.shape[1]):
        add(gates, v if mask is None else v * mask, w.t())
        return
    for own, gate, columns in by_gate(mask, v.shape[1], gates, w.t()):
        add(gate, v * own, columns)


def multiply_back(
    d_gates: Tensor,
    mask: Tensor | None,
    w: Tensor,
    out: Tensor | None = None,
    product: Product = torch.mm,
) -> Tensor:
    """The gradient of v, of one step, from that of the gates."""
    if mask is None or not per_gate(mask, w.shape[1]):
        d_v = product(d_gates, w, out=out)
        return d_v if mask is None else d_v.mul_(mask)
    d_v = d_gates.new_empty(len(d_gates), w.shape[1]) if out is None else out
    return _add_back(d_v.zero_(), d_gates, mask, w)


def project(x: Tensor, mask: Tensor, w: Tensor) -> Tensor:
    """The products of all steps, of gates that have a mask each."""
    if gemm.runs(x, w):
        return gemm.product(x, w.t(), masks=gemm.PartMasks("a", mask))
    gates = x.new_empty(len(x), len(w))
    for own, gate, columns in by_gate(mask, x.shape[1], gates, w.t()):
        torch.mm(times(x, own), columns, out=gate)
    return gates


def project_back(d_gates: Tensor, mask: Tensor, w: Tensor) -> Tensor:
    """The gradient of x from that of the gates."""
    if gemm.runs(d_gates, w):
        return gemm.product(d_gates, w, masks=gemm.PartMasks("c", mask))
    return _add_back(d_gates.new_zeros(len(d_gates), w.shape[1]), d_gates, mask, w)


def of_weights(d_gates: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """The gradient of the weights of gates that have a mask each."""
    if gemm.runs(d_gates, v):
        return gemm.product(d_gates.t(), v, masks=gemm.PartMasks("b", mask))
    d_w = v.new_empty(d_gates.shape[1], v.shape[1])
    for own, d_gate, columns in by_gate(mask, v.shape[1], d_gates, d_w.t()):
        torch.mm(d_gate.t(), times(v, own), out=columns.t())
    return d_w


def _add_back(d_v: Tensor, d_gates: Tensor, mask: Tensor, w: Tensor) -> Tensor:
    """Add what each gate has read through its own mask."""
    for own, d_gate, rows in by_gate(mask, w.shape[1], d_gates, w.t()):
        d_v.view(-1, *own.shape).addcmul_((d_gate @ rows.t()).view(-1, *own.shape), own)
    return d_v
