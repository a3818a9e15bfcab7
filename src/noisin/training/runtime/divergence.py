"""Detection of a non-finite loss before it reaches the weights, and of its origin."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from noisin.errors import NoisinError
from noisin.noise import Noise
from noisin.training.config import TrainConfig


class Diverged(NoisinError, ArithmeticError):
    """The loss of a run is not finite."""


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether all entries are finite."""
    norms = torch._foreach_norm([tensor.detach() for tensor in tensors], float("inf"))
    return bool(torch.stack(norms).isfinite().all())


def trace(model: nn.Module, forward: Callable[[], Any]) -> str:
    """The origin of the first non-finite value: a weight, a layer's output, or a gradient.

    ``forward`` processes the batch again, with the same noise.
    """
    weight = first_weight(model)
    if weight is not None:
        return weight
    layer = _first_layer(model, forward)
    if layer is not None:
        return f"the output of {layer} is not finite"
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not all_finite([parameter.grad]):
            return f"the gradient of {name} is not finite"
    return "the outputs of all layers are finite, and the prediction is not"


def first_weight(model: nn.Module) -> str | None:
    """A message about the first weights that are not finite, if any."""
    for name, weight in model.named_parameters():
        if not all_finite([weight]):
            return f"the weights {name} are not finite"
    return None


def _first_layer(model: nn.Module, forward: Callable[[], Any]) -> str | None:
    """The first layer whose output is not finite; modules inside a layer come before it."""
    found: list[str] = []

    def recording(name: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            if not all(part.isfinite().all() for part in _tensors(output)):
                found.append(name)

        return hook

    handles = [
        m.register_forward_hook(recording(name)) for name, m in model.named_modules() if name
    ]
    try:
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None


def advice(train: TrainConfig, noise: Noise | None) -> str:
    """What to try, with the current values."""
    clip = f"{train.clip:g}" if train.clip else "none"
    less_noise = "" if noise is None else f", or less noise (now {noise})"
    return f"Try a smaller train.lr (now {train.lr:g}) or train.clip (now {clip}){less_noise}."


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, tuple | list):
        return [tensor for part in value for tensor in _tensors(part)]
    return []
