r"""All steps of a latent variable whose law depends on its last value, as that of an SRNN does.

.. math::

    o_t = W f(k_t + V z_{t-1}) + b, \qquad z_t = g(o_t, η_t)

Here k_t is known of all steps, o_t contains the means and scales of the laws of z_t, and g draws
from one of them, each entry of z_t by its own entries of o_t. The loop runs without a graph.
Backward, the derivatives of f and g are factors, computed of all steps at once, and so are the
gradients of k, V, W and b. The loop only computes

.. math::

    δ_t = \frac{∂L}{∂o_t} + \frac{∂g}{∂o_t} V^⊤ (f' \cdot W^⊤ δ_{t+1})
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from noisin._util import torch_state

Draw = Callable[[Tensor, Tensor], Tensor]
Activation = Callable[[Tensor], Tensor]


def chain(
    known: Tensor,
    eta: Tensor,
    z0: Tensor,
    V: Tensor,
    W: Tensor,
    b: Tensor,
    *,
    f: Activation,
    g: Draw,
) -> Tensor:
    """``o`` of all steps, ``(T, N, C, Z)``.

    Args:
        known: ``(T, N, M)``.
        eta: standard normal, ``(T, N, Z)``.
        z0: the value before the first step, ``(N, Z)``.
        V, W, b: ``(Z, M)``, ``(M, C·Z)`` and ``(C·Z,)``: they multiply rows from the right.
        f: the activation.
        g: ``(o, eta) -> z``, of one step ``(N, C, Z)`` and of all; it has no parameters.

    >>> known, eta, z0 = torch.zeros(3, 2, 4), torch.ones(3, 2, 1), torch.zeros(2, 1)
    >>> V, W, b = torch.ones(1, 4), torch.ones(4, 1), torch.zeros(1)
    >>> def g(o, eta):
    ...     return o[..., 0, :] + eta
    >>> chain(known, eta, z0, V, W, b, f=torch.relu, g=g)[:, 0, 0, 0]
    tensor([ 0.,  4., 20.])
    """
    inputs = known, eta, z0, V, W, b
    hidden = torch_state.compiling() or torch_state.recording() or torch_state.autocasting()
    if hidden or not all(map(torch_state.plain, inputs)):
        return _steps(*inputs, f, g)[0]
    o: Tensor = _Chain.apply(*inputs, f, g)  # type: ignore[no-untyped-call]
    return o


def _steps(
    known: Tensor, eta: Tensor, z: Tensor, V: Tensor, W: Tensor, b: Tensor, f: Activation, g: Draw
) -> tuple[Tensor, Tensor, Tensor]:
    """o, what f reads, and the z before each step, by plain operations."""
    before, read, found = [], [], []
    for known_t, eta_t in zip(known, eta, strict=True):
        before.append(z)
        read.append(torch.addmm(known_t, z, V))
        found.append(torch.addmm(b, f(read[-1]), W).view(len(z), -1, z.shape[-1]))
        z = g(found[-1], eta_t)
    return torch.stack(found), torch.stack(read), torch.stack(before)


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *tensors, ctx.f, ctx.g = inputs
        o, read, before = _steps(*inputs)
        ctx.save_for_backward(*tensors, o, read, before)
        return o

    @staticmethod
    def backward(ctx: Any, d_o: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, o, read, before = ctx.saved_tensors
        if torch.is_grad_enabled() or torch_state.batched_by_autograd(d_o):
            return *_composed(tensors, ctx, d_o), None, None
        _, eta, _, V, W, _ = tensors
        hidden, df = _with_slopes(ctx.f, read)
        _, by_o, by_eta = _with_slopes(ctx.g, o, eta)
        delta = d_o.clone(memory_format=torch.contiguous_format)
        d_read, d_before = torch.empty_like(read), torch.empty_like(before)
        for t in reversed(range(len(eta))):
            torch.mm(delta[t].flatten(1), W.t(), out=d_read[t]).mul_(df[t])
            torch.mm(d_read[t], V.t(), out=d_before[t])
            if t:
                delta[t - 1].addcmul_(by_o[t - 1], d_before[t].unsqueeze(1))
        d_eta = torch.cat([d_before[1:], torch.zeros_like(d_before[:1])]) * by_eta
        rows, d_rows = hidden.flatten(0, 1), delta.flatten(2).flatten(0, 1)
        d_V = before.flatten(0, 1).t() @ d_read.flatten(0, 1)
        return d_read, d_eta, d_before[0], d_V, rows.t() @ d_rows, d_rows.sum(0), None, None


def _with_slopes(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
    """A function of each entry, and its derivatives by each of the inputs."""
    with torch.enable_grad():
        leaves = [part.detach().requires_grad_() for part in inputs]
        y = function(*leaves)
        return y.detach(), *torch.autograd.grad(y.sum(), leaves)


def _composed(tensors: list[Tensor], ctx: Any, d_o: Tensor) -> Iterator[Tensor | None]:
    """The gradients by torch's operations: for second derivatives, and batches of gradients."""
    with torch.enable_grad():  # views, so that none is differentiated through another
        views = [part.view_as(part) for part in tensors]
        known, eta, z0, V, W, b = views
        o, _, _ = _steps(known, eta, z0, V, W, b, ctx.f, ctx.g)
    needs = ctx.needs_input_grad
    needed = [view for view, need in zip(views, needs, strict=False) if need]
    found = iter(torch.autograd.grad(o, needed, d_o, create_graph=torch.is_grad_enabled()))
    return (next(found) if need else None for need in needs[: len(views)])
