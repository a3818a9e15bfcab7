"""A noisy layer as an operator of torch, ``noisin::layer``, for ``torch.compile`` and export.

The compiler records one node for a layer in one direction and one for its backward, however many
steps there are. Their sizes are those of the tensors, so the batch and T may be symbolic. What the
operator computes when it runs is :func:`.layer.forward` and :func:`.layer.backward`, by the
recurrence that :func:`.choice.recurrence_for` names then.

Where nothing is traced, :func:`.layer.run` calls the same two functions without the dispatcher,
because that is faster. An LSTM with H = 8, T = 1, N = 1 on one core of an AMD EPYC (family 25,
model 17), in microseconds:

======================================  =====================  =================
calls                                   forward and backward   without gradients
======================================  =====================  =================
without the dispatcher                  333                    100
this operator, by ``Library``           584                    101
the same by ``torch.library.custom_op`` 709                    139
======================================  =====================  =================
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from noisin.errors import Unsupported
from noisin.recurrent.cell import KERNEL_CELLS
from noisin.recurrent.functional import Factors, Mode, States, Weights
from noisin.recurrent.kernels import layer, masks
from noisin.recurrent.kernels.choice import RECURRENCES, recurrence_for
from noisin.recurrent.kernels.plan import Outline, Plan

_INPUTS = (
    "Tensor x, Tensor eps, Tensor? mask, Tensor z0, Tensor? carry0, Tensor w_ih, Tensor w_hh, "
    "Tensor? b_ih, Tensor? b_hh, Tensor? w_hr, Tensor? x_mask"
)
_PLAN = "Tensor? batch_sizes, str cell, bool additive, bool reverse"
_GRADIENTS = (
    "Tensor d_x, Tensor d_z0, Tensor d_carry0, Tensor d_w_ih, Tensor d_w_hh, Tensor d_b_ih, "
    "Tensor d_b_hh, Tensor d_w_hr"
)
_FACTORS = ", ".join(f"Tensor? {name}=None" for name in Factors._fields)
_NAMES = {spec.code: name for name, spec in KERNEL_CELLS.items()}
_COUNT = 11  # of the inputs
_KEEP = _COUNT + 4  # the number of the argument `keep`, or `needs`, which follows the plan
# Of the inputs these have gradients:
_DIFFERENTIABLE = (0, 3, 4, 5, 6, 7, 8, 9)

_library: Any = torch.library.Library("noisin", "FRAGMENT")  # type: ignore[no-untyped-call]
_library.define(
    f"layer({_INPUTS}, {_PLAN}, bool keep, {_FACTORS}) -> "
    "(Tensor z, Tensor carry, Tensor gates, Tensor carries)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_library.define(
    f"layer_backward({_INPUTS}, {_PLAN}, bool[11] needs, Tensor gates, Tensor z, Tensor carries, "
    f"Tensor d_z, Tensor? d_carry=None, {_FACTORS}) -> ({_GRADIENTS})",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def run(
    outline: Outline,
    x: Tensor,
    eps: Tensor,
    state: States,
    w: Weights,
    mask: Tensor | None,
    factors: Factors = Factors(),  # noqa: B008 - immutable
    x_mask: Tensor | None = None,
) -> tuple[Tensor, States]:
    """All z as rows ``(S, H)`` and the final state, as :func:`.reference.run`."""
    inputs = layer.joined(x, eps, state, w, mask, x_mask)
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)
    z, carry, _, _ = torch.ops.noisin.layer(
        *inputs,
        outline.batch_sizes,
        _NAMES[outline.cell.code],
        outline.mode == "additive",
        outline.reverse,
        keep,
        *factors,
    )
    return z, (outline.last(z, state[0].shape[0]), *[carry][: len(state) - 1])


def _plan(inputs: layer.Inputs, described: Any) -> Plan:
    batch_sizes, cell, additive, reverse = described
    mode: Mode = "additive" if additive else "multiplicative"
    outline = Outline(KERNEL_CELLS[cell], mode, batch_sizes, reverse)
    return outline.sized(inputs[0].shape[0], inputs[3].shape[0])


def _recurrence(inputs: layer.Inputs, factors: Factors) -> str:
    x, eps, mask = inputs[:3]
    return recurrence_for(x, bool(factors.given) or masks.per_gate(mask, eps.shape[1]))


@torch.no_grad()
def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    inputs, described, keep = arguments[:_COUNT], arguments[_COUNT:_KEEP], arguments[_KEEP]
    factors = Factors(*arguments[_KEEP + 1 :])  # the dispatcher leaves out those that are None
    recurrence = RECURRENCES[_recurrence(inputs, factors)]
    plan = _plan(inputs, described)
    z, carry, gates, carries = layer.forward(plan, recurrence, inputs, keep, factors)
    # An operator returns tensors: those that do not exist are empty.
    none = z.new_empty(0)
    return z, _or(carry, none), gates if keep else none.clone(), _or(carries, none)


def _or(value: Tensor | None, empty: Tensor) -> Tensor:
    return empty.clone() if value is None else value


def _forward_shapes(*arguments: Any) -> tuple[Tensor, ...]:
    x, eps, _, z0, carry0, _, w_hh = arguments[:7]
    keep, cell = arguments[_KEEP], KERNEL_CELLS[arguments[_COUNT + 1]]
    S, H = x.shape[0], w_hh.shape[0] // cell.recurrent
    return (
        x.new_empty(S, eps.shape[1]),
        x.new_empty(0) if carry0 is None else x.new_empty(z0.shape[0], H),
        x.new_empty(S, cell.slots * H) if keep else x.new_empty(0),
        x.new_empty(S, H) if keep and cell.carry else x.new_empty(0),
    )


@torch.no_grad()
def _backward(*arguments: Any) -> tuple[Tensor, ...]:
    inputs, described = arguments[:_COUNT], arguments[_COUNT:_KEEP]
    needs, gates, z, carries = arguments[_KEEP : _KEEP + 4]
    d_outputs, factors = arguments[_KEEP + 4 : _KEEP + 6], Factors(*arguments[_KEEP + 6 :])
    recurrence = RECURRENCES[_recurrence(inputs, factors)]
    plan = _plan(inputs, described)
    kept = gates, z, carries if plan.cell.carry else None
    given = [d for d in d_outputs if d is not None]
    found = layer.backward(plan, recurrence, inputs, needs, kept, given, factors)
    none = z.new_empty(0)
    return tuple(_or(found[k] if needs[k] else None, none) for k in _DIFFERENTIABLE)


def _backward_shapes(*arguments: Any) -> tuple[Tensor, ...]:
    inputs, needs = arguments[:_COUNT], arguments[_KEEP]
    return tuple(inputs[0].new_empty(inputs[k].shape if needs[k] else 0) for k in _DIFFERENTIABLE)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    z, _, gates, carries = output
    batch_sizes, *ctx.described, ctx.kept = inputs[_COUNT : _KEEP + 1]
    ctx.mark_non_differentiable(gates, carries)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:_COUNT], *inputs[_KEEP + 1 :], batch_sizes, gates, z, carries)


def _gradients(ctx: Any, d_z: Tensor | None, d_carry: Tensor | None, *_: Any) -> Any:
    *tensors, batch_sizes, gates, z, carries = ctx.saved_tensors
    inputs, factors = tensors[:_COUNT], Factors(*tensors[_COUNT:])
    described, needs = (batch_sizes, *ctx.described), list(ctx.needs_input_grad[:_COUNT])
    of_factors = (needs[1], needs[2], needs[10], *ctx.needs_input_grad[_COUNT:])
    _require_gradients(ctx.kept, any(of_factors))
    d_outputs = [torch.zeros_like(z) if d_z is None else d_z]
    if (carry0 := inputs[4]) is not None:
        d_outputs.append(torch.zeros_like(carry0) if d_carry is None else d_carry)
    if layer.composes(d_outputs):
        found = layer.composed(_plan(inputs, described), inputs, needs, d_outputs, factors)
    else:
        found = [None] * _COUNT
        d_z, d_carry = (*d_outputs, None)[:2]
        gradients = torch.ops.noisin.layer_backward(
            *inputs, *described, needs, gates, z, carries, d_z, d_carry, *factors
        )
        for k, gradient in zip(_DIFFERENTIABLE, gradients, strict=True):
            found[k] = gradient if needs[k] else None
    return *found, *[None] * (5 + len(factors))


def _require_gradients(kept: bool, by_factors: bool) -> None:
    if not kept or by_factors:
        what = "noise or a mask" if kept else "anything, because the layer kept nothing for it"
        raise Unsupported(
            f"noisin::layer: it cannot differentiate by {what}. Call noisin.LSTM, RNN or GRU "
            f"instead of the operator, and trace them with gradients enabled."
        )


def _autocast(device: str) -> Any:
    """As torch's own kernels for RNNs: all tensors in the dtype of the products, but float64."""
    key = getattr(torch._C.DispatchKey, f"Autocast{device.upper()}")

    def kernel(*arguments: Any) -> Any:
        low = torch.get_autocast_dtype(device)
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return torch.ops.noisin.layer(*(_lowered(value, low) for value in arguments))

    return kernel


def _lowered(value: Any, low: torch.dtype) -> Any:
    floating = isinstance(value, Tensor) and value.is_floating_point()
    return value.to(low) if floating and value.dtype != torch.float64 else value


_library.impl("layer", _forward, "CompositeExplicitAutograd")
_library.impl("layer_backward", _backward, "CompositeExplicitAutograd")
torch.library.register_fake("noisin::layer", _forward_shapes, lib=_library)
torch.library.register_fake("noisin::layer_backward", _backward_shapes, lib=_library)
torch.library.register_autograd("noisin::layer", _gradients, setup_context=_keep, lib=_library)
for _device in ("cpu", "cuda"):
    _library.impl("layer", _autocast(_device), f"Autocast{_device.upper()}")
