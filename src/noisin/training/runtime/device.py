"""Where a run computes: device, threads, and a random stream of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from noisin.errors import InvalidValue


def find_device(name: str) -> torch.device:
    """The device to compute on, or a message if there is none."""
    if name == "cuda" and not torch.cuda.is_available():
        raise InvalidValue(
            "training: device is 'cuda' and torch finds no such device. Use device = 'cpu'."
        )
    return (
        torch.device("cuda", torch.cuda.current_device()) if name == "cuda" else torch.device(name)
    )


@contextmanager
def own_random_stream(device: torch.device) -> Iterator[None]:
    """Leave torch's generators to the caller as they were."""
    with torch.random.fork_rng(devices=[device.index] if device.type == "cuda" else []):
        yield


def random_state(device: torch.device) -> dict[str, Tensor]:
    """Where the generators that a run draws from stand."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def rewind(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Let the generators draw again what they have drawn since :func:`random_state`."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Compute with so many threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
