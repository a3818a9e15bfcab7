"""How a layer whose noise is fed back is computed: three kernels, one result.

``reference``
    The loop of differentiable torch operations: slow, and right under every transform.
``eager``
    One autograd function per layer in plain torch: any device, no compiler.
``c``
    The same with the recurrence in C, compiled on first use; CPU, float32 and float64, without
    projection. Elsewhere, and without a compiler, the eager one runs.

The environment variable ``NOISIN_KERNEL`` chooses: ``auto`` (the default, C where it runs),
``eager``, ``c`` or ``reference``; :func:`using` does so inside a ``with``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor
from torch.nn import Parameter

from noisin._util import checks, torch_state
from noisin.errors import Unsupported
from noisin.recurrent.functional import States, Weights
from noisin.recurrent.kernels import layer, native, reference
from noisin.recurrent.kernels.plan import Plan as Plan

CHOICES = ("auto", "c", "eager", "reference")
_chosen: ContextVar[str | None] = ContextVar("noisin_kernel", default=None)


def chosen() -> str:
    """The choice in force: that of :func:`using`, else of ``NOISIN_KERNEL``, else ``auto``."""
    choice = _chosen.get()
    if choice is None:
        choice = os.environ.get("NOISIN_KERNEL", "auto")
        checks.one_of("NOISIN_KERNEL", choice, CHOICES)
    return choice


@contextmanager
def using(kernel: str) -> Iterator[None]:
    """Context manager: choose the kernel.

    >>> with using("eager"):
    ...     chosen()
    'eager'
    """
    checks.one_of("kernels.using", kernel, CHOICES)
    token = _chosen.set(kernel)
    try:
        yield
    finally:
        _chosen.reset(token)


def run(
    plan: Plan, x: Tensor, eps: Tensor, state: States, w: Weights, mask: Tensor | None = None
) -> tuple[Tensor, States]:
    """Run one layer in one direction: all z, as rows ``(S, H)``, and the final state.

    ``x``, ``eps`` and ``mask`` are rows ``(S, ·)``, the state ``(z,)`` or ``(z, carry)`` has N of
    them. The gates read ``z_{t-1} * m_t`` where there is a mask.
    """
    if mask is not None and not plan.cell.masks:
        raise Unsupported(
            "RNN: a mask on what a GRU reads keeps its carry whole, and site='state' makes the two "
            "one. Use site='read'."
        )
    kernel = kernel_for(x, eps, state, w, mask)
    if kernel == "reference":
        return reference.run(plan, x, eps, state, w, mask)
    return layer.run(plan, x, eps, state, w, mask, compiled=kernel == "c")


def kernel_for(
    x: Tensor, eps: Tensor, state: States, w: Weights, mask: Tensor | None = None
) -> str:
    """Which kernel runs these tensors, by name."""
    factors = [eps] if mask is None else [eps, mask]
    tensors = [x, *factors, *state, *(v for v in w if v is not None)]
    choice = chosen()
    learned = any(t.requires_grad for t in factors)  # of which only the reference has gradients
    hidden = learned or torch_state.recording() or _lowered(tensors)
    if choice == "reference" or hidden or not _plain(tensors):
        return "reference"
    if choice == "eager" or torch_state.dispatching() or not native.runs(x, w.w_hr):
        return "eager"
    return "c"


def _plain(tensors: list[Tensor]) -> bool:
    """Ordinary tensors of one dtype on one device, not empty, and not negated lazily."""
    kinds = {(type(t), t.dtype, t.device) for t in tensors}
    return {kind for kind, _, _ in kinds} <= {Tensor, Parameter} and (
        len({kind[1:] for kind in kinds}) == 1
        and tensors[0].device.type != "meta"
        and len(tensors[0]) > 0
        and not any(t.is_neg() for t in tensors)
    )


def _lowered(tensors: list[Tensor]) -> bool:
    """Whether autocast would lower the precision of some product, which a kernel hides."""
    low = torch_state.autocast_dtype(tensors[0])
    return low is not None and any(t.dtype != low for t in tensors)
