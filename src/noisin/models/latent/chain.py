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

from collections.abc import Callable, Iterable, Iterator, Sequence
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
    if not runs_as_one(inputs):
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

            def run(*views: Any) -> list[Tensor]:
                return [_steps(*[*views, ctx.f, ctx.g])[0]]

            return *composed(run, tensors, ctx.needs_input_grad, (d_o,)), None, None
        _, eta, _, V, W, _ = tensors
        hidden, df = with_slopes(ctx.f, read)
        _, by_o, by_eta = with_slopes(ctx.g, o, eta)
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


def runs_as_one(inputs: Iterable[Tensor]) -> bool:
    """Whether a loop may be one function: nothing has to see its single operations."""
    seen = torch_state.compiling() or torch_state.recording() or torch_state.autocasting()
    return not seen and all(map(torch_state.plain, inputs))


def with_slopes(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
    """A function of each entry, and its derivatives by each of the inputs."""
    with torch.enable_grad():
        leaves = [part.detach().requires_grad_() for part in inputs]
        y = function(*leaves)
        return y.detach(), *torch.autograd.grad(y.sum(), leaves)


def composed(
    run: Callable[..., Sequence[Tensor]],
    inputs: Sequence[Tensor | None],
    needs: Sequence[bool],
    d_outputs: Sequence[Tensor],
) -> Iterator[Tensor | None]:
    """The gradients by torch's operations: for second derivatives, and batches of gradients."""
    with torch.enable_grad():  # views, so that none is differentiated through another
        views = [None if part is None else part.view_as(part) for part in inputs]
        outputs = run(*views)
    wanted = needs[: len(views)]
    needed = [view for view, need in zip(views, wanted, strict=True) if need and view is not None]
    # Of the first steps, some outputs depend on nothing that needs a gradient.
    pairs = [(y, d) for y, d in zip(outputs, d_outputs, strict=True) if y.requires_grad]
    if not pairs:
        return (None for _ in wanted)
    ys, ds = zip(*pairs, strict=True)
    create = torch.is_grad_enabled()
    found = iter(torch.autograd.grad(ys, needed, ds, create_graph=create, allow_unused=True))
    return (next(found) if need else None for need in wanted)
