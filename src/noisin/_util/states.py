"""States: trees of tensors whose batch is dimension -2, and what is done to all their tensors.

A state is None, a tensor, or a tuple, list or named tuple of states. A layer's ``(layers, N, H)``
and a cell's ``(N, H)`` both have their rows in dimension -2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from noisin._util import checks, torch_state

State = Any


def map(function: Callable[..., Tensor], state: State, *others: State) -> State:
    """The state of what ``function`` returns for each tensor, and for those at its place in others.

    >>> map(torch.neg, (torch.tensor([1.0]), None))
    (tensor([-1.]), None)
    """
    if isinstance(state, tuple | list):
        parts = [map(function, *each) for each in zip(state, *others, strict=True)]
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    if state is None:
        return None
    checks.require_tensors("state", state=state)
    return function(state, *others)


def detach(state: State) -> State:
    """A state without its history, as truncated backpropagation carries it to the next window."""
    return map(Tensor.detach, state)


def to(state: State, device: torch.device | str) -> State:
    """A state on a device."""
    return map(lambda part: part.to(device), state)


def repeat(state: State, K: int) -> State:
    """K copies of all rows side by side: row n of copy k is row k·N + n."""
    return map(lambda part: torch.cat([part] * K, dim=-2), state)


def spread(state: State, N: int, K: int) -> State:
    """A state of K·N rows: as it is, or K copies of one of N."""
    return map(lambda part: part if _rows(part) != N else torch.cat([part] * K, dim=-2), state)


def sample(state: State, N: int, k: int) -> State:
    """The N rows of the k-th sample; a state of N rows is that of all samples.

    >>> sample(torch.arange(6).view(6, 1), 2, 1).flatten()
    tensor([2, 3])
    """
    own = slice(k * N, (k + 1) * N)
    return map(lambda part: part if _rows(part) == N else part[..., own, :], state)


def is_common(state: State, N: int, K: int) -> bool:
    """Whether K samples have one state: it has N rows, or K·N rows that are K equal copies.

    Copies that gradients are wanted of are not one, because each has its own.

    >>> one = torch.tensor([[1.0], [2.0]])
    >>> is_common(repeat(one, 3), 2, 3), is_common(torch.arange(6.0).view(6, 1), 2, 3)
    (True, False)
    """
    if isinstance(state, tuple | list):
        return all(is_common(part, N, K) for part in state)
    if state is None or _rows(state) == N:
        return True
    if _rows(state) != K * N or state.requires_grad or not torch_state.values_known(state):
        return False
    samples = _by_sample(state, N)
    return torch.equal(samples, samples[..., :1, :, :].expand_as(samples))


def _rows(part: Tensor) -> int:
    return part.shape[-2] if part.dim() > 1 else -1


def columns(state: State, which: slice, total: int) -> State:
    """Of K samples of ``total`` columns each, side by side, those columns.

    >>> columns(torch.arange(6).view(6, 1), slice(0, 1), total=3).flatten()
    tensor([0, 3])
    """
    return map(lambda part: _by_sample(part, total)[..., which, :].flatten(-3, -2), state)


def join(states: Sequence[State], size: int) -> State:
    """The inverse of :func:`columns`: states of K samples of ``size`` columns each, as one."""

    def joined(*parts: Tensor) -> Tensor:
        return torch.cat([_by_sample(part, size) for part in parts], dim=-2).flatten(-3, -2)

    return map(joined, *states)


def _by_sample(part: Tensor, columns: int) -> Tensor:
    """``(..., K · columns, H)`` as ``(..., K, columns, H)``."""
    return part.reshape(*part.shape[:-2], -1, columns, part.shape[-1])
