"""Torch's optimizers in their fastest implementation: one pass over each parameter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

FUSED_ON = ("cpu", "cuda", "mps", "xpu")
Parameters = Iterable[Tensor] | Iterable[dict[str, Any]]


def sgd(parameters: Parameters, lr: float, **options: Any) -> torch.optim.SGD:
    """``torch.optim.SGD``, fused where torch can.

    >>> sgd([torch.nn.Parameter(torch.zeros(2))], lr=20.0).defaults["fused"]
    True
    """
    given: list[Any] = list(parameters)
    return torch.optim.SGD(given, lr, **_fastest(given), **options)


def adamw(parameters: Parameters, lr: float, **options: Any) -> torch.optim.AdamW:
    """``torch.optim.AdamW``, fused where torch can."""
    given: list[Any] = list(parameters)
    return torch.optim.AdamW(given, lr, **_fastest(given), **options)


def _fastest(parameters: list[Any]) -> dict[str, Any]:
    groups = [p["params"] if isinstance(p, dict) else [p] for p in parameters]
    tensors = [t for group in groups for t in ([group] if isinstance(group, Tensor) else group)]
    fused = all(t.is_floating_point() and t.device.type in FUSED_ON for t in tensors)
    return {"fused": True} if fused else {"foreach": True}
