"""Nll and gradients of a linear categorical prediction, a chunk of rows at a time.

With ``s = z V + b``, m the largest entry of a row of s, ``e = exp(s - m)`` and ``d = Σ e``, the nll
of a row is ``log d - (s_x - m)`` and its gradient with respect to s is ``(e - d·onehot(x)) / d``.
One buffer contains s, then e, then the gradient. The division by d and the multiplication by the
weight of the row are applied to the small operands of the products instead.

Torch 2.13 has a chunked ``F.linear_cross_entropy`` too. It is not used here: its gradient cannot be
differentiated (without an error), a second backward pass is refused, and it is slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from noisin._util.products import ONEDNN, Products, mkl

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
Weigh = Callable[[slice, Tensor], Tensor]
Errors = tuple[Tensor, Tensor]  # the gradient of each nll with respect to s, times d; and d

CACHE_LINE = 64
FEW = 32  # rows, whose gradients with respect to s are kept
_BLOCK = 64  # rows of a product over few rows
_SIZES = ((64, 1_000), (200, 5_000), (650, 10_000), (650, 33_278))  # H and O
_EXAMPLES = dict(zip(("small", "medium", "large", "huge"), _SIZES, strict=True))


def _example(kind: str, size: str) -> tuple[Tensor, Tensor]:
    """The matrices of a chunk of a tied language model."""
    H, O = _EXAMPLES[size]  # noqa: E741
    z, ds, V = torch.zeros(256, H), torch.zeros(256, O), torch.zeros(O, H).t()
    return {"logits": (z, V), "states": (ds, V.t())}[kind]


# z V, and the gradient of z. That of V is added to a sum, which torch's product can do alone.
HEAD = Products("head", {"logits": mkl, "states": mkl}, {"onednn": ONEDNN}, _example)


@dataclass(frozen=True)
class Prediction:
    """The operands: z ``(n, H)``, V ``(H, O)``, x ``(n,)`` and bias ``(O,)``, of one dtype."""

    z: Tensor
    V: Tensor
    x: Tensor
    bias: Tensor | None
    chunk_size: int

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the nll and of all sums: at least float32."""
        return torch.promote_types(self.z.dtype, torch.float32)

    def chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """The rows of each chunk and their s, which the caller may overwrite."""
        n, size = len(self.z), self.chunk_size
        buffer = aligned(min(n, size), self.V.shape[1], self.z)
        for first in range(0, n, size):
            rows = slice(first, min(first + size, n))
            s, z = buffer[: rows.stop - first], self.z[rows]
            s = HEAD("logits", z, self.V, bias=self.bias, out=s)
            yield rows, s.to(self.dtype)

    @property
    def few(self) -> bool:
        """Whether there are few rows, all in one chunk."""
        return 0 < len(self.z) <= min(FEW, self.chunk_size)

    def nll(self) -> Tensor:
        """The nll of each row."""
        nll = self.z.new_empty(len(self.z), dtype=self.dtype)
        for rows, s in self.chunks():
            nll[rows] = _exponentiated(s, self.x[rows])[1]
        return nll

    def nll_and_gradients(self, weigh: Weigh, needed: tuple[bool, ...]) -> tuple[Tensor, Gradients]:
        """The nll of each row, and the ``needed`` gradients of their weighted sum.

        ``weigh`` takes the rows of a chunk and their nll to their weights, which are constants.
        """
        nll = self.z.new_empty(len(self.z), dtype=self.dtype)
        total = _Sum(self, needed)
        for rows, s in self.chunks():
            nll[rows], (ds, d) = self._errors(rows, s)
            total.add(rows, ds, weigh(rows, nll[rows]) / d)
        return nll, total.gradients()

    def nll_and_errors(self) -> tuple[Tensor, Errors]:
        """The nll of each of few rows, and what :meth:`gradients` needs, as large as s."""
        ((rows, s),) = self.chunks()
        return self._errors(rows, s)

    def gradients(self, errors: Errors, weight: Tensor, needed: tuple[bool, ...]) -> Gradients:
        """The ``needed`` gradients of the weighted sum of few rows; may overwrite the errors."""
        total, (ds, d) = _Sum(self, needed), errors
        total.add(slice(0, len(ds)), ds, weight / d)
        return total.gradients()

    def _errors(self, rows: slice, s: Tensor) -> tuple[Tensor, Errors]:
        d, nll = self.exponentiate(rows, s)
        return nll, (s.scatter_add_(1, self.x[rows, None], -d[:, None]), d)

    def exponentiate(self, rows: slice, s: Tensor) -> tuple[Tensor, Tensor]:
        """Replace the s of some rows by e in place; return d and the nll of each."""
        return _exponentiated(s, self.x[rows])


class _Sum:
    """The gradients with respect to z, V and bias, summed over the chunks."""

    def __init__(self, prediction: Prediction, needed: tuple[bool, ...]) -> None:
        z, V, dtype = prediction.z, prediction.V, prediction.dtype
        self.prediction = prediction
        self.dz = torch.empty_like(z) if needed[0] else None
        self.needs_V, self.dV = needed[1], None
        if needed[1] and not prediction.few:
            self.dV = _aligned_like(V, dtype)
        self.db = z.new_zeros(V.shape[1], dtype=dtype) if needed[2] else None
        self.product = aligned(min(len(z), prediction.chunk_size), V.shape[0], z)

    def add(self, rows: slice, ds: Tensor, scale: Tensor) -> None:
        """Add the contribution of rows whose gradient with respect to s is ``scale * ds``."""
        z, V = self.prediction.z[rows], self.prediction.V
        if self.db is not None:
            self.db.addmv_(ds.t(), scale)
        if ds.dtype != z.dtype:  # half precision, whose range may be too small for ds itself
            ds, scale = ds.mul_(scale[:, None]).to(z.dtype), torch.ones_like(scale)
        scale = scale[:, None]
        if self.dz is not None:
            product = HEAD("states", ds, V.t(), out=self.product[: len(ds)])
            torch.mul(product, scale, out=self.dz[rows])
        if self.needs_V and self.dV is None:
            z, transposed = (z * scale).to(z.dtype), is_transposed(V)
            self.dV = over_few_rows(ds, z).t() if transposed else over_few_rows(z, ds)
        elif self.dV is not None and self.dV.dtype == ds.dtype:
            self.dV.addmm_((z * scale).t(), ds)
        elif self.dV is not None:
            self.dV.add_(z.t() @ ds)

    def gradients(self) -> Gradients:
        """In the dtype of the operands."""
        dtype = self.prediction.z.dtype
        return (
            self.dz,
            None if self.dV is None else self.dV.to(dtype),
            None if self.db is None else self.db.to(dtype),
        )


def _exponentiated(s: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Replace s by e in place; return d and the nll of each row."""
    s.sub_(s.amax(dim=1, keepdim=True))
    s_x = s.gather(1, x[:, None]).squeeze(1)
    d = s.exp_().sum(dim=1)
    return d, d.log() - s_x


def _aligned_like(V: Tensor, dtype: torch.dtype) -> Tensor:
    """Zeros in the memory order of V: with tied weights, V is the transpose of a parameter."""
    H, O = V.shape  # noqa: E741
    return aligned(O, H, V, dtype).t() if is_transposed(V) else aligned(H, O, V, dtype)


def is_transposed(V: Tensor) -> bool:
    """Whether V is a transpose in memory, as the weights of an embedding are."""
    return V.stride(0) < V.stride(1)


def over_few_rows(a: Tensor, b: Tensor) -> Tensor:
    """``a.t() @ b`` of matrices with few rows, as a batch of products.

    MKL takes three times as long for one such product with a large result.

    >>> over_few_rows(torch.ones(2, 100), torch.ones(2, 3)).unique(), _BLOCK
    (tensor([2.]), 64)
    """
    count, rest = divmod(a.shape[1], _BLOCK)
    product = a.new_empty(a.shape[1], b.shape[1])
    parts = a[:, rest:].view(len(a), count, _BLOCK).permute(1, 2, 0)
    blocks = product[rest:].view(count, _BLOCK, b.shape[1])
    torch.bmm(parts, b.expand(count, *b.shape), out=blocks)
    torch.mm(a[:, :rest].t(), b, out=product[:rest])
    return product


def aligned(rows: int, columns: int, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A matrix of zeros in which every row starts on a cache line.

    Writing a product into such a matrix is a third faster; few vocabularies are multiples of 16.

    >>> aligned(2, 50, torch.empty(0)).stride()
    (64, 1)
    """
    dtype = dtype or like.dtype
    line = CACHE_LINE // dtype.itemsize
    return like.new_zeros(rows, -(-columns // line) * line, dtype=dtype)[:, :columns]
