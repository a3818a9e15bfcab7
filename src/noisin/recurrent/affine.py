r"""The solution of an affine recurrence for all steps at once, and its gradients.

The recurrence is ``h_0 = b_0`` and ``h_t = a_t h_{t-1} + b_t``, elementwise. ``links`` are the
T - 1 coefficients ``a_1, ..., a_{T-1}``, each between two neighbouring steps. Backward in time,
``reverse``, it is ``h_{T-1} = b_{T-1}`` and ``h_t = a_{t+1} h_{t+1} + b_t``, with the same links.

One is the gradient of the other, because the solution is linear in b: with g the gradient of h,

    d b = solve(conj(a), g, reversed),      d a_t = conj(h_{t-1}) d b_t,

so the backward pass is a scan as well, and so is its own. Two algorithms compute it:

- in place, in chunks, as one autograd function: :func:`_fill`;
- by doubling, ``⌈log2 T⌉`` differentiable operations on all steps: :func:`doubled`, for the
  transforms and compilers of torch, which need to see plain operations.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from noisin._util import torch_state

# A step of the loop takes about as long as one operation on so many entries; below it, the time of
# a step is that of the call. See "Speed" in docs/scans.md.
WORTH_A_CALL = 2048


def solve(links: Tensor, b: Tensor, reverse: bool = False) -> Tensor:
    """All states, of the shape of b.

    Args:
        links: ``(T - 1, ...)``, the coefficients between neighbouring steps.
        b: ``(T, ...)``, of the same dtype and the same other sizes.
        reverse: whether time runs backward.

    >>> solve(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 1.0, 1.0]))
    tensor([1.0000, 1.5000, 1.7500])
    """
    if torch_state.compiling() or torch_state.recording() or not _plain(links, b):
        return doubled(links, b, reverse)
    solved: Tensor = _Solve.apply(links, b, reverse)  # type: ignore[no-untyped-call]
    return solved


class _Solve(torch.autograd.Function):
    """The chunked scan, whose backward is the scan in the other direction."""

    @staticmethod
    def forward(ctx: Any, links: Tensor, b: Tensor, reverse: bool) -> Tensor:
        h = b.clone(memory_format=torch.contiguous_format)
        if reverse:
            _fill(links, h[:-1], h[-1], reverse)
        else:
            _fill(links, h[1:], h[0], reverse)
        ctx.save_for_backward(links, h)
        ctx.reverse = reverse
        return h

    @staticmethod
    def backward(ctx: Any, d_h: Tensor) -> tuple[Tensor | None, Tensor, None]:
        links, h = ctx.saved_tensors
        d_b = solve(links.conj(), d_h, not ctx.reverse)
        if not ctx.needs_input_grad[0]:
            return None, d_b, None
        before, after = (h[1:], d_b[:-1]) if ctx.reverse else (h[:-1], d_b[1:])
        return before.conj() * after, d_b, None


def _plain(*tensors: Tensor) -> bool:
    return all(torch_state.plain(t) and not torch_state.batched_by_autograd(t) for t in tensors)


def doubled(links: Tensor, b: Tensor, reverse: bool = False) -> Tensor:
    """The same in plain operations: after k of them, each step has the sum over 2ᵏ steps."""
    h, p, d = b, links, 1
    while d < len(b):
        if reverse:
            h = torch.cat([h[:-d] + p * h[d:], h[-d:]])
        else:
            h = torch.cat([h[:d], h[d:] + p * h[:-d]])
        if 2 * d < len(b):
            p = p[d:] * p[:-d]
        d *= 2
    return h


def chunk_length(T: int, entries: int) -> int:
    """How many steps a chunk has: T, for one chunk, if the calls of a loop are no cost.

    C steps of all chunks at once and then T/C chunks one by one are fewest calls for C = √T.
    """
    short = T < 16 or not entries or entries >= WORTH_A_CALL
    return T if short else round(T**0.5)


def _fill(a: Tensor, h: Tensor, start: Tensor, reverse: bool) -> None:
    """Turn the b in h into the states, in place: ``h_t = a_t h_{t-1} + b_t`` from ``start``."""
    T = len(a)
    C = chunk_length(T, start.numel())
    K = T // max(C, 1)
    if K > 1:
        whole, rest = slice(0, K * C), slice(K * C, T)  # the steps that are left over come last
        if reverse:
            whole, rest = slice(T - K * C, T), slice(0, T - K * C)
        start = _fill_chunks(a[whole], h[whole], start, K, reverse)
        a, h = a[rest], h[rest]
    for a_t, h_t in _steps(a, h, 0, reverse):
        h_t.addcmul_(a_t, start)
        start = h_t


def _fill_chunks(a: Tensor, h: Tensor, start: Tensor, K: int, reverse: bool) -> Tensor:
    """The same for K chunks of equal length; returns the last state.

    All chunks run from zero side by side, p being the products of their coefficients so far. Then
    the last states of the chunks follow one from another, and p carries them into each chunk.
    """
    h = h.view(K, -1, *h.shape[1:])
    p = a.reshape(K, -1, *a.shape[1:]).clone(memory_format=torch.contiguous_format)
    steps = _steps(p, h, 1, reverse)
    for (p_before, h_before), (p_t, h_t) in pairwise(steps):
        h_t.addcmul_(p_t, h_before)
        p_t.mul_(p_before)
    p_last, h_last = steps[-1]
    _fill(p_last, h_last, start, reverse)
    head, tail = slice(None, -1), slice(1, None)
    first, others, inner = (-1, head, tail) if reverse else (0, tail, head)
    h[first, inner].addcmul_(p[first, inner], start)
    h[others, inner].addcmul_(p[others, inner], h_last[inner].unsqueeze(1))
    return h_last[0 if reverse else -1]


def _steps(a: Tensor, h: Tensor, dim: int, reverse: bool) -> list[tuple[Tensor, Tensor]]:
    """The steps of both, in the order of time."""
    steps = list(zip(a.unbind(dim), h.unbind(dim), strict=True))
    return steps[::-1] if reverse else steps
