"""Whether the noise of a model reaches its output: the noise on against off, at one seed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from noisin.recurrent.injection import Injected, noise_off

SEED = 1111


def outputs(
    model: nn.Module, call: Callable[[], Any], noisy: Collection[Injected], seed: int = SEED
) -> list[Tensor]:
    """The tensors that a call of the model returns with the noise of these modules, and no other.

    Whatever else is random, such as dropout, is the same whichever modules are noisy, because noise
    is drawn from generators of its own. Neither torch's random streams nor buffers change.
    """
    devices = [p.device for p in model.parameters() if p.device.type == "cuda"]
    with (
        torch.no_grad(),
        torch.random.fork_rng({device.index for device in devices}),
        buffers_kept(model),
        noise_off(model),
        _drawing_apart(noisy, seed),
    ):
        torch.manual_seed(seed)
        return [leaf for leaf in tree_leaves(call()) if isinstance(leaf, Tensor)]


def moved(before: list[Tensor], after: list[Tensor]) -> bool:
    """Whether some tensor is another one."""
    alike = len(before) == len(after) and all(map(_equal, before, after))
    return not alike


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


@contextmanager
def _drawing_apart(modules: Collection[Injected], seed: int) -> Iterator[None]:
    """Switch these modules on, each with a generator of its own."""
    before = [(module, module.injection) for module in modules]
    try:
        for module, injection in before:
            device = next((p.device for p in module.parameters()), torch.device("cpu"))
            generator = torch.Generator(device).manual_seed(seed)
            module.injection = replace(injection, generator=generator)
            module._noise_switch = True
        yield
    finally:
        for module, injection in before:
            module.injection = injection


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """Undo what a call in train() does to buffers, such as the statistics of BatchNorm."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffer, value in before:
            buffer.copy_(value)
