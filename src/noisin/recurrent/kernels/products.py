"""The products of all time steps of a layer, by the fastest library for them."""

from __future__ import annotations

import torch
from torch import Tensor

from noisin._util.products import ONEDNN, Candidate, Products, mkl
from noisin.recurrent.kernels import compiled, gemm

# Torch's product of many rows is a tenth faster in pieces of this many.
_ROWS = 512
# The gradient of a weight, on an AMD EPYC (family 25, model 17), by its product or the transpose of
# one: 700 rows of 256 units 9.1 or 9.5 ms, of 650 units 56 or 64; 2,800 rows of 650 204 or 196.
_MANY_ROWS = 2048
# Steps of all sequences, and hidden units: those of 20 sequences of 35 steps, or of 80.
_EXAMPLES = {"small": (700, 64), "medium": (700, 256), "large": (700, 650), "huge": (2800, 650)}


def by_rows(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Torch's product, some rows at a time."""
    product = a.new_empty(len(a), b.shape[1]) if out is None else out
    for rows, part in zip(torch.split(a, _ROWS), torch.split(product, _ROWS), strict=True):
        torch.mm(rows, b, out=part)
    return product


def over_rows(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Torch's product of two matrices whose rows are summed over, in either order."""
    if len(b) < _MANY_ROWS:
        return torch.mm(a, b, out=out)
    return torch.mm(b.t(), a.t()).t().contiguous()


def _example(kind: str, size: str) -> tuple[Tensor, Tensor]:
    """The matrices of an LSTM."""
    S, H = _EXAMPLES[size]
    x, d, w = torch.zeros(S, H), torch.zeros(S, 4 * H), torch.zeros(4 * H, H)
    return {"input": (x, w.t()), "back": (d, w), "weights": (d.t(), x)}[kind]


LAYER = Products(
    "layer",
    # x Wᵀ of all steps; back, d W; and dᵀ x, the gradient of a weight
    {"input": mkl, "back": by_rows, "weights": over_rows},
    {"onednn": ONEDNN, "c": Candidate(gemm.product, gemm.runs)},
    _example,
    lambda: compiled.origin() or "no kernel",
)
