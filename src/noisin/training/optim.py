"""Torch's optimizers in their fastest implementation: fused, one pass over each parameter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from noisin._util import arguments
from noisin.errors import InvalidType
from noisin.training.config import TrainConfig

FUSED_ON = ("cpu", "cuda", "mps", "xpu")
_KINDS: dict[str, Any] = {"betas": tuple, "foreach": bool | None, "fused": bool | None}
Parameters = Iterable[Tensor] | Iterable[dict[str, Any]]


def sgd(parameters: Parameters, lr: float, **options: Any) -> torch.optim.SGD:
    """``torch.optim.SGD``, fused where torch supports it.

    >>> sgd([torch.nn.Parameter(torch.zeros(2))], lr=20.0).defaults["fused"]
    True
    """
    given = _checked("sgd", parameters, {"lr": lr, **options})
    return torch.optim.SGD(given, lr, **_fastest(given, lr), **options)


def adamw(parameters: Parameters, lr: float, **options: Any) -> torch.optim.AdamW:
    """``torch.optim.AdamW``, fused where torch supports it."""
    given = _checked("adamw", parameters, {"lr": lr, **options})
    return torch.optim.AdamW(given, lr, **_fastest(given, lr), **options)


def adam(parameters: Parameters, lr: float, **options: Any) -> torch.optim.Adam:
    """``torch.optim.Adam``, fused where torch supports it."""
    given = _checked("adam", parameters, {"lr": lr, **options})
    return torch.optim.Adam(given, lr, **_fastest(given, lr), **options)


def _checked(name: str, parameters: Parameters, options: dict[str, Any]) -> list[Any]:
    """The parameters as a list, or raise; torch itself checks the values of options."""
    if isinstance(parameters, Tensor):
        raise InvalidType(f"{name}: expected parameters, got one tensor. Pass [parameter].")
    arguments.items(f"{name}: parameters", parameters, "tensors, such as model.parameters(),")
    given: list[Any] = list(parameters)
    for p in given:
        if not isinstance(p, Tensor | dict) or (isinstance(p, dict) and "params" not in p):
            raise InvalidType(
                f"{name}: expected tensors, or groups {{'params': tensors}}, got {p!r:.60}. Pass "
                f"model.parameters()."
            )
    for option, value in options.items():
        single = isinstance(value, Tensor) and value.numel() == 1 and not value.is_meta
        if not isinstance(value, _KINDS.get(option, int | float)) and not single:
            raise InvalidType(f"{name}: {option} must be a number, got {value!r:.60}.")
    return given


def _fastest(parameters: list[Any], lr: object) -> dict[str, Any]:
    groups = [p["params"] if isinstance(p, dict) else [p] for p in parameters]
    tensors = [t for group in groups for t in ([group] if isinstance(group, Tensor) else group)]
    fused = all(t.is_floating_point() and t.device.type in FUSED_ON for t in tensors)
    if fused:
        return {"fused": True}
    return {} if isinstance(lr, Tensor) else {"foreach": True}  # foreach takes numbers only


def build_optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of all weights, as configured."""
    decay = {"weight_decay": config.weight_decay}
    if config.optimizer == "sgd":
        return sgd(model.parameters(), config.lr, **decay)
    kind = adamw if config.optimizer == "adamw" else adam
    betas = (config.beta1, 0.999)
    return kind(model.parameters(), config.lr, betas=betas, **decay)


@torch.no_grad()
def shrink(parameters: list[Tensor], share: float) -> None:
    """Subtract a share of each weight, ``w -= share · w``: decay that is not multiplied by lr.

    >>> weight = torch.nn.Parameter(torch.tensor([4.0]))
    >>> shrink([weight], 0.25)
    >>> weight.item()
    3.0
    """
    torch._foreach_add_(parameters, parameters, alpha=-share)
