"""The device, the threads and the random stream of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from noisin.errors import InvalidValue


def find_device(name: str) -> torch.device:
    """The device to compute on; raises if it is not available."""
    if name == "cuda" and not torch.cuda.is_available():
        raise InvalidValue(
            "training: device = 'cuda', but torch finds no CUDA device. Use device = 'cpu'."
        )
    return (
        torch.device("cuda", torch.cuda.current_device()) if name == "cuda" else torch.device(name)
    )


@contextmanager
def own_random_stream(device: torch.device) -> Iterator[None]:
    """Restore torch's generators on exit."""
    with torch.random.fork_rng(devices=[device.index] if device.type == "cuda" else []):
        yield


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The state of the generators that a run draws from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def rewind(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Reset the generators to a state that :func:`random_state` returned."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Compute with ``count`` threads, and restore the number of threads on exit."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
