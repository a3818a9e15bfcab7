"""An inventory of torch's classes for intersphinx, made from the installed torch.

So a build needs no network, and a base class that torch exports under a shorter name (its real one
is such as ``torch.nn.modules.rnn.LSTM``) leads to its page.
"""

from __future__ import annotations

import inspect
import zlib
from pathlib import Path

import torch

TORCH = "https://docs.pytorch.org/docs/stable/"
MODULES = (torch, torch.nn, torch.optim, torch.autograd, torch.distributions)


def write(path: Path) -> str:
    """Write the inventory; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = f"# Sphinx inventory version 2\n# Project: torch\n# Version: {torch.__version__}\n"
    head += "# The remainder of this file is compressed using zlib.\n"
    path.write_bytes(head.encode() + zlib.compress("".join(sorted(_lines())).encode()))
    return str(path)


def _lines() -> set[str]:
    found = {"torch.Tensor py:class 1 tensors.html#torch.Tensor -\n"}
    for module in MODULES:
        for name, value in inspect.getmembers(module, inspect.isclass):
            public, real = f"{module.__name__}.{name}", f"{value.__module__}.{name}"
            place = f"generated/{public}.html#{public}"
            found |= {f"{known} py:class 1 {place} -\n" for known in {public, real}}
    return found
