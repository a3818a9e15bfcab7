"""States: trees of tensors whose batch is dimension -2, or None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def map_tensors(function: Callable[[Tensor], Tensor], state: Any) -> Any:
    """A state with every tensor replaced by a function of it."""
    if isinstance(state, tuple | list):
        parts = [map_tensors(function, part) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    return None if state is None else function(state)


def detach(state: Any) -> Any:
    """A state without its history, as truncated backpropagation carries it to the next batch."""
    return map_tensors(Tensor.detach, state)


def to(state: Any, device: torch.device) -> Any:
    """A state on a device."""
    return map_tensors(lambda tensor: tensor.to(device), state)
