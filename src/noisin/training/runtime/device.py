"""The device, the threads and the random stream of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from noisin.errors import InvalidValue


def chosen_device(name: str) -> str:
    """The device that ``"auto"`` stands for: the first of CUDA, MPS and the CPU that is there."""
    if name != "auto":
        return name
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def find_device(name: str, remedy: str = "Use device = 'cpu' or 'auto'.") -> torch.device:
    """The device to compute on; raises if it is not available."""
    name = chosen_device(name)
    missing = {"cuda": not torch.cuda.is_available(), "mps": not torch.backends.mps.is_available()}
    if missing.get(name, name != "cpu"):
        raise InvalidValue(
            f"training: device = {name!r:.60}, but torch finds no {name[:60].upper()} device. "
            f"{remedy}"
        )
    return torch.device(name, torch.cuda.current_device()) if name == "cuda" else torch.device(name)


@contextmanager
def own_random_stream(device: torch.device) -> Iterator[None]:
    """Restore torch's generators on exit."""
    before = random_state(device)
    try:
        yield
    finally:
        rewind(before, device)


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The state of the generators that a run draws from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def rewind(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Reset the generators to a state that :func:`random_state` returned."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
    if device.type == "mps":
        torch.mps.set_rng_state(states["mps"])


def in_float64(t: Tensor) -> Tensor:
    """A tensor in float64; on the CPU if its own device, MPS, has no float64."""
    return (t.cpu() if t.device.type == "mps" else t).double()


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Compute with ``count`` threads, and restore the number of threads on exit."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
