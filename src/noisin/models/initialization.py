"""How the weights of a language model start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Generator, Tensor, nn

Initialization = Literal["uniform", "truncated-normal"]
INITIALIZATIONS: tuple[Initialization, ...] = ("uniform", "truncated-normal")
# The standard deviation of a standard normal variable that is cut at ±2.
_CUT = 0.8796256610342398


def truncated_normal_(values: Tensor, std: float, generator: Generator | None = None) -> Tensor:
    """Draw values of this standard deviation from a normal law that is cut at two of its own.

    >>> drawn = truncated_normal_(torch.empty(10_000), 0.5, torch.Generator().manual_seed(1111))
    >>> drawn.std(), drawn.abs().max() <= 1 / _CUT
    (tensor(0.5029), tensor(True))
    """
    sigma = std / _CUT
    return nn.init.trunc_normal_(values, 0.0, sigma, -2 * sigma, 2 * sigma, generator)


def start_truncated(modules: Iterable[nn.Module], generator: Generator | None = None) -> None:
    """Start the weights of these modules as Melis, Dyer and Blunsom (2018) do.

    A matrix that reads n numbers has the standard deviation 1/√n, and so has an embedding of n
    units. A bias of a cell with H units gets a draw of 1/√H on top of its first value.
    """
    with torch.no_grad():
        for module in modules:
            sizes = [size for part in module.modules() if (size := _units(part))]
            for path, parameter in module.named_parameters():
                if _is("weight", path):
                    truncated_normal_(parameter, parameter.shape[-1] ** -0.5, generator)
                elif _is("bias", path) and sizes:
                    draw = torch.empty_like(parameter)
                    parameter.add_(truncated_normal_(draw, sizes[0] ** -0.5, generator))


def _units(module: nn.Module) -> int:
    return int(getattr(module, "hidden_size", 0))


def _is(kind: str, path: str) -> bool:
    """Whether a parameter of this path is of a kind, such as ``rnn.cell.weight_hh.0``."""
    return any(part.startswith(kind) for part in path.split("."))
