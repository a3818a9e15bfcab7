"""A loss that is no number: found at once, before it reaches the weights, and traced to a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from noisin.errors import NoisinError
from noisin.noise import Noise
from noisin.training.config import TrainConfig


class Diverged(NoisinError, ArithmeticError):
    """Training has left the finite numbers."""


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether no entry is nan or infinite."""
    norms = torch._foreach_norm([tensor.detach() for tensor in tensors], float("inf"))
    return bool(torch.stack(norms).isfinite().all())


def trace(model: nn.Module, forward: Callable[[], Any]) -> str:
    """Where the numbers first stop being finite: a weight, a layer's output, or a gradient.

    ``forward`` runs the window again, with the noise that it had.
    """
    weight = first_weight(model)
    if weight is not None:
        return weight
    layer = _first_layer(model, forward)
    if layer is not None:
        return f"{layer} puts out values that are not finite"
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not all_finite([parameter.grad]):
            return f"the gradient of {name} is not finite"
    return "all layers put out finite values, and the prediction does not"


def first_weight(model: nn.Module) -> str | None:
    """The first weights that are not finite, if any."""
    for name, weight in model.named_parameters():
        if not all_finite([weight]):
            return f"the weights {name} are not finite"
    return None


def _first_layer(model: nn.Module, forward: Callable[[], Any]) -> str | None:
    """Run the window again and listen to every layer. Those inside a layer are heard before it."""
    found: list[str] = []

    def listen(name: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            if not all(part.isfinite().all() for part in _tensors(output)):
                found.append(name)

        return hook

    handles = [m.register_forward_hook(listen(name)) for name, m in model.named_modules() if name]
    try:
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None


def advice(train: TrainConfig, noise: Noise | None) -> str:
    """What to try, with the present values."""
    clip = f"{train.clip:g}" if train.clip else "none"
    less_noise = "" if noise is None else f", or less noise (now {noise})"
    return f"Try a smaller train.lr (now {train.lr:g}) or train.clip (now {clip}){less_noise}."


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, tuple | list):
        return [tensor for part in value for tensor in _tensors(part)]
    return []
