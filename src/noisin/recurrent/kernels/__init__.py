"""How a layer whose noise is fed back is computed: four kernels, one result.

``reference``
    The loop of differentiable torch operations: slow, and right under every transform.
``eager``
    One autograd function per layer in plain torch: any device, no compiler.
``c``
    The same with the recurrence in C, prebuilt or compiled on first use; CPU, float32 and float64.
    Elsewhere, and where it cannot be compiled, the eager one runs.
``triton``
    The same with one fused kernel per step, compiled by Triton on first use; GPUs, float16,
    bfloat16, float32 and float64. Elsewhere, and without Triton, the eager one runs.

While torch.compile or torch.export traces a layer, it is the ``operator``, which runs one of the
other three.

The environment variable ``NOISIN_KERNEL`` chooses: ``auto`` (the default, Triton or C where they
run), ``eager``, ``c``, ``triton`` or ``reference``; :func:`using` does so inside a ``with``.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import Parameter

from noisin._util import torch_state
from noisin.errors import Unsupported
from noisin.recurrent.functional import Factors, States, Weights
from noisin.recurrent.kernels import layer, masks, operator, reference
from noisin.recurrent.kernels.choice import CHOICES as CHOICES
from noisin.recurrent.kernels.choice import RECURRENCES, recurrence_for
from noisin.recurrent.kernels.choice import chosen as chosen
from noisin.recurrent.kernels.choice import everywhere as everywhere
from noisin.recurrent.kernels.choice import replaces_torch as replaces_torch
from noisin.recurrent.kernels.choice import using as using
from noisin.recurrent.kernels.plan import Outline as Outline
from noisin.recurrent.kernels.plan import Plan as Plan


def run(
    plan: Plan | Outline,
    x: Tensor,
    eps: Tensor,
    state: States,
    w: Weights,
    mask: Tensor | None = None,
    factors: Factors = Factors(),  # noqa: B008 - immutable
    x_mask: Tensor | None = None,
) -> tuple[Tensor, States]:
    """Run one layer in one direction: all z, as rows ``(S, H)``, and the final state.

    ``x``, ``eps``, ``mask`` and the factors are rows ``(S, ·)``, the state ``(z,)`` or
    ``(z, carry)`` has N of them. The gates read ``z_{t-1} * m_t`` where there is a mask. It may be
    one for each gate, ``x_mask`` is, and either may be held: see :mod:`~.kernels.masks`.
    """
    if x_mask is not None and plan.cell.name != "lstm":
        raise Unsupported(f"kernels: x_mask is for the gates of an LSTM, got {plan.cell.name}.")
    if mask is not None and not plan.cell.masks:
        raise Unsupported(
            "RNN: a mask on what a GRU reads keeps its carry whole, and site='state' makes the two "
            "one. Use site='read'."
        )
    kernel = kernel_for(x, eps, state, w, mask, factors, x_mask)
    if kernel == "operator":
        outline = plan if isinstance(plan, Outline) else plan.outline
        return operator.run(outline, x, eps, state, w, mask, factors, x_mask)
    if isinstance(plan, Outline):
        plan = plan.sized(x.shape[0], state[0].shape[0])
    if kernel == "reference":
        return reference.run(plan, x, eps, state, w, mask, factors, x_mask)
    return layer.run(plan, x, eps, state, w, mask, factors, x_mask, recurrence=RECURRENCES[kernel])


def kernel_for(
    x: Tensor,
    eps: Tensor,
    state: States,
    w: Weights,
    mask: Tensor | None = None,
    factors: Factors = Factors(),  # noqa: B008 - immutable
    x_mask: Tensor | None = None,
) -> str:
    """Which kernel runs these tensors, by name; the ``operator`` chooses when it runs."""
    given = [t for t in (eps, mask, x_mask, *factors) if t is not None]
    tensors = [x, *given, *state, *(v for v in w if v is not None)]
    learned = any(t.requires_grad for t in given)  # of which only the reference has gradients
    hidden = learned or torch_state.recording() or _lowered(tensors)
    if chosen() == "reference" or hidden or not _alike(tensors):
        return "reference"
    if torch_state.compiling():
        return "operator" if all(map(torch_state.traceable, tensors)) else "reference"
    if not _plain(tensors):
        return "reference"
    return recurrence_for(x, bool(factors.given) or masks.per_gate(mask, eps.shape[1]))


def _alike(tensors: list[Tensor]) -> bool:
    """Tensors of one dtype on one device, not empty."""
    x = tensors[0]
    return x.shape[0] > 0 and all(t.dtype == x.dtype and t.device == x.device for t in tensors)


def _plain(tensors: list[Tensor]) -> bool:
    """Ordinary tensors with values, not negated lazily."""
    return (
        {type(t) for t in tensors} <= {Tensor, Parameter}
        and tensors[0].device.type != "meta"
        and not any(t.is_neg() for t in tensors)
    )


def _lowered(tensors: list[Tensor]) -> bool:
    """Whether autocast would lower the precision of some product, which a kernel hides."""
    low = torch_state.autocast_dtype(tensors[0])
    return low is not None and any(t.dtype != low for t in tensors)
