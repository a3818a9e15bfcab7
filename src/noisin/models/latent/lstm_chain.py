r"""All steps of an LSTM and of a latent variable that it reads, as a VRNN has them.

.. math::

    h_t, c_t &= LSTM(a_t, ψ_{t-1}, h_{t-1}, c_{t-1}), \quad \tilde h_t = h_t (1 + ε_t) \\
    o_t &= f(k_t + \tilde h_t V) W + b, \quad z_t = g(o_t, η_t), \quad ψ_t = f(z_t E + e)

Here a_t and k_t are known of all steps: what the gates read of the inputs, and what the networks of
the laws of z_t read besides h. As in :mod:`~noisin.models.latent.chain`, the loop runs without a
graph, and all that does not depend on the next step is computed of all steps at once: backward,
these are the slopes of f, g and the gates, and the gradients of all weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from noisin._util import torch_state
from noisin.models.latent.chain import Activation, Draw, composed, runs_as_one, with_slopes
from noisin.recurrent.functional import Mode, inject


class Operands(NamedTuple):
    """The tensors of :func:`lstm_chain`. Matrices multiply rows from the right.

    Attributes:
        a: what the gates read of the inputs, with their biases, ``(T, N, 4H)``.
        k: what the networks of the laws read besides h, ``(T, N, K)``.
        eta: standard normal, ``(T, N, Z)``.
        eps: the noise on h, ``(T, N, H)``, or None.
        psi, h, c: ψ, h and c before the first step, ``(N, M)``, ``(N, H)`` and ``(N, H)``.
        A: what multiplies ψ and h in the gates, ``(M + H, 4H)``.
        V, W, b: those of the laws, ``(H, K)``, ``(K, C·Z)`` and ``(C·Z,)``.
        E, e: those of ψ, ``(Z, M)`` and ``(M,)``.
    """

    a: Tensor
    k: Tensor
    eta: Tensor
    eps: Tensor | None
    psi: Tensor
    h: Tensor
    c: Tensor
    A: Tensor
    V: Tensor
    W: Tensor
    b: Tensor
    E: Tensor
    e: Tensor


class Functions(NamedTuple):
    """The functions of :func:`lstm_chain`, none of which has parameters.

    Attributes:
        f: the activation.
        g: ``(o, eta) -> z``, each entry of z by its own entries, of one step and of all.
        mode: of the noise.
        feedback: whether the next step reads the h with noise, or the clean one.
    """

    f: Activation
    g: Draw
    mode: Mode = "multiplicative"
    feedback: bool = True


class ChainSteps(NamedTuple):
    """What all steps computed.

    Attributes:
        o: the outputs of the networks of the laws, ``(T, N, C, Z)``.
        h: with noise, ``(T, N, H)``.
        psi: ``(T, N, M)``.
        last_h, last_c: what the next window reads, ``(N, H)``.
    """

    o: Tensor
    h: Tensor
    psi: Tensor
    last_h: Tensor
    last_c: Tensor


class _Kept(NamedTuple):
    """What the gradients need besides: the inputs of the gates, of f and of ψ; and c."""

    read: Tensor
    gates: Tensor
    c: Tensor
    r: Tensor
    p: Tensor


def lstm_chain(operands: Operands, functions: Functions) -> ChainSteps:
    """All steps.

    >>> T, N, H, K, Z, M = 3, 2, 4, 5, 1, 2
    >>> known = torch.zeros(T, N, 4 * H), torch.zeros(T, N, K), torch.ones(T, N, Z), None
    >>> before = torch.zeros(N, M), torch.zeros(N, H), torch.zeros(N, H)
    >>> A, V, W, E = torch.ones(M + H, 4 * H), torch.ones(H, K), torch.ones(K, Z), torch.ones(Z, M)
    >>> weights = A, V, W, torch.zeros(Z), E, torch.zeros(M)
    >>> def g(o, eta):
    ...     return o[..., 0, :] + eta
    >>> steps = lstm_chain(Operands(*known, *before, *weights), Functions(torch.relu, g))
    >>> steps.o.shape, steps.psi[0, 0]
    (torch.Size([3, 2, 1, 1]), tensor([1., 1.]))
    """
    learned = operands.eps is not None and operands.eps.requires_grad  # a law of your own
    if learned or not runs_as_one([part for part in operands if part is not None]):
        return _run(operands, functions)[0]
    return ChainSteps(*_LSTMChain.apply(functions, *operands))  # type: ignore[no-untyped-call]


def _run(x: Operands, do: Functions) -> tuple[ChainSteps, _Kept]:
    """The loop, by plain operations."""
    psi, h, c, H = x.psi, x.h, x.c, x.h.shape[-1]
    noise = x.eps if x.eps is not None else [None] * len(x.eta)
    found: list[tuple[Tensor, ...]] = []
    for a, k, eta, eps in zip(x.a, x.k, x.eta, noise, strict=True):
        read = torch.cat([psi, h], -1)
        gates = torch.addmm(a, read, x.A)
        i, f, _, o = gates.sigmoid().chunk(4, -1)
        c = torch.addcmul(f * c, i, gates[:, 2 * H : 3 * H].tanh())
        clean = o * c.tanh()
        noisy = clean if eps is None else inject(clean, eps, do.mode)
        h = noisy if do.feedback else clean
        r = torch.addmm(k, noisy, x.V)
        outputs = torch.addmm(x.b, do.f(r), x.W).view(len(h), -1, eta.shape[-1])
        p = torch.addmm(x.e, do.g(outputs, eta), x.E)
        psi = do.f(p)
        found.append((outputs, noisy, psi, read, gates, c, r, p))
    outputs, noisy, psis, *kept = map(torch.stack, zip(*found, strict=True))
    return ChainSteps(outputs, noisy, psis, h, c), _Kept(*kept)


class _LSTMChain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, functions: Functions, *operands: Any) -> tuple[Tensor, ...]:
        steps, kept = _run(Operands(*operands), functions)
        ctx.functions = functions
        ctx.save_for_backward(*operands, steps.o, steps.h, *kept)
        return tuple(steps)

    @staticmethod
    def backward(ctx: Any, *d_outputs: Tensor) -> tuple[Tensor | None, ...]:
        saved: Sequence[Any] = ctx.saved_tensors
        count, functions = len(Operands._fields), ctx.functions
        operands = saved[:count]
        if torch.is_grad_enabled() or any(map(torch_state.batched_by_autograd, d_outputs)):
            needs = ctx.needs_input_grad[1:]
            found = composed(
                lambda *views: _run(Operands(*views), functions)[0], operands, needs, d_outputs
            )
            return None, *found
        o, h, *kept = saved[count:]
        return None, *_gradients(
            Operands(*operands), functions, o, h, _Kept(*kept), ChainSteps(*d_outputs)
        )


def _gradients(
    x: Operands, do: Functions, o: Tensor, h: Tensor, kept: _Kept, d: ChainSteps
) -> Operands:
    """The gradient of each operand; there is none of eps."""
    hidden, by_r = with_slopes(do.f, kept.r)
    _, by_p = with_slopes(do.f, kept.p)
    z, by_o, by_eta = with_slopes(do.g, o, x.eta)
    by_gates, c_by_h, forget = _slopes_of_gates(kept.gates, kept.c, x.c)
    by_h = None if x.eps is None or do.mode == "additive" else 1 + x.eps
    M = x.psi.shape[-1]
    d_o = d.o.clone(memory_format=torch.contiguous_format)
    d_gates, d_r, d_p, d_z = map(torch.empty_like, (by_gates, kept.r, kept.p, z))
    d_c = d.last_c.clone(memory_format=torch.contiguous_format)
    d_read = torch.cat([torch.zeros_like(x.psi), d.last_h], -1)
    for t in reversed(range(len(z))):
        torch.mul(d.psi[t] + d_read[:, :M], by_p[t], out=d_p[t])
        torch.mm(d_p[t], x.E.t(), out=d_z[t])
        d_o[t].addcmul_(by_o[t], d_z[t].unsqueeze(1))
        torch.mm(d_o[t].flatten(1), x.W.t(), out=d_r[t]).mul_(by_r[t])
        d_h = torch.addmm(d.h[t], d_r[t], x.V.t())
        if do.feedback:
            d_h += d_read[:, M:]
        if by_h is not None:
            d_h *= by_h[t]
        if not do.feedback:
            d_h += d_read[:, M:]
        d_c.addcmul_(d_h, c_by_h[t])
        torch.mul(d_c.unsqueeze(1), by_gates[t, :, :3], out=d_gates[t, :, :3])
        torch.mul(d_h, by_gates[t, :, 3], out=d_gates[t, :, 3])
        d_c *= forget[t]
        d_read = d_gates[t].flatten(1) @ x.A.t()
    d_a, d_o = d_gates.flatten(2), d_o.flatten(2)
    return Operands(
        d_a, d_r, d_z * by_eta, None, d_read[:, :M], d_read[:, M:], d_c,
        A=_of_weights(kept.read, d_a),
        V=_of_weights(h, d_r),
        W=_of_weights(hidden, d_o), b=d_o.sum((0, 1)),
        E=_of_weights(z, d_p), e=d_p.sum((0, 1)),
    )  # fmt: skip


def _slopes_of_gates(gates: Tensor, c: Tensor, c0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The slopes of c by i, f and g and of h by o, ``(T, N, 4, H)``; of h by c; and f."""
    i, f, g, o = gates.chunk(4, -1)
    i, f, g, o, s = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid(), c.tanh()
    before = torch.cat([c0.unsqueeze(0), c[:-1]])
    slopes = g * i * (1 - i), before * f * (1 - f), i * (1 - g * g), s * o * (1 - o)
    return torch.stack(slopes, -2), o * (1 - s * s), f


def _of_weights(x: Tensor, d_y: Tensor) -> Tensor:
    """The gradient of a matrix that multiplied all rows of x."""
    return x.flatten(0, 1).t() @ d_y.flatten(0, 1)
