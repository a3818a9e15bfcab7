"""Products with what gates read of rows v through masks: ``(v * m) w'``, and back.

There is no mask, or one for all gates, with the columns of v, or one for each of the R gates, which
follow one another in R times as many columns, in the order of the weights w, ``(R · H, ·)``. Masks
that are held, the same at all steps, have the N rows of one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from noisin.recurrent.kernels.plan import Plan

Product = Callable[..., Tensor]  # as those of products.LAYER
AddProduct = Callable[[Tensor, Tensor, Tensor], Tensor]  # of the last two to the first, in place


def by_torch(a: Tensor, b: Tensor, *, parts: int = 1) -> Tensor:
    """Torch's product, of any size."""
    del parts
    return torch.mm(a, b)


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


def project(product: Product, x: Tensor, mask: Tensor, w: Tensor) -> Tensor:
    """The products of all steps, of gates that have a mask each."""
    gates, parts = x.new_empty(len(x), len(w)), mask.shape[1] // x.shape[1]
    for own, gate, columns in by_gate(mask, x.shape[1], gates, w.t()):
        into(gate, product(times(x, own), columns, out=gate, parts=parts))
    return gates


def of_weights(product: Product, d_gates: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """The gradient of the weights of gates that have a mask each."""
    d_w, parts = v.new_empty(d_gates.shape[1], v.shape[1]), mask.shape[1] // v.shape[1]
    for own, d_gate, columns in by_gate(mask, v.shape[1], d_gates, d_w.t()):
        rows = columns.t()
        into(rows, product(d_gate.t(), times(v, own), out=rows, parts=parts))
    return d_w


def multiply_back(
    d_gates: Tensor,
    mask: Tensor | None,
    w: Tensor,
    out: Tensor | None = None,
    product: Product = by_torch,
) -> Tensor:
    """The gradient of v from that of the gates."""
    if mask is None or not per_gate(mask, w.shape[1]):
        d_v = product(d_gates, w) if out is None else torch.mm(d_gates, w, out=out)
        return d_v if mask is None else d_v.mul_(mask)
    d_v = d_gates.new_empty(len(d_gates), w.shape[1]) if out is None else out
    parts = mask.shape[1] // w.shape[1]
    for r, (own, d_gate, columns) in enumerate(by_gate(mask, w.shape[1], d_gates, w.t())):
        by_step = d_v.view(-1, *own.shape)
        read = product(d_gate, columns.t(), parts=parts).view_as(by_step)
        torch.mul(read, own, out=by_step) if r == 0 else by_step.addcmul_(read, own)
    return d_v


def into(place: Tensor, found: Tensor) -> None:
    """Copy a product to its place, unless it is there: some libraries have it elsewhere."""
    if found.data_ptr() != place.data_ptr():
        place.copy_(found)
