"""One recurrent layer, forward and backward, as each rival computes it.

``torch``
    torch's module, without noise.
``loop``
    a loop over torch's cell with Gaussian noise: what a researcher would write.
``limit``
    the matrix products alone, without which no layer can be computed, each by the fastest of
    all candidates: torch's own, oneDNN's and those of the C kernel.
``eager``, ``c``
    noisin's module with Gaussian noise, by either kernel, drawing the noise included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

import noisin
from benchmarks.timing import seconds
from noisin import noise
from noisin.recurrent import functional, kernels
from noisin.recurrent.kernels.products import LAYER

GAMMA = 1.1
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@dataclass(frozen=True)
class Size:
    """One layer of ``hidden_size`` H on N sequences of T steps of H features."""

    cell: str
    H: int
    N: int
    T: int = 35

    def __str__(self) -> str:
        name = "Elman" if self.cell == "RNN" else self.cell
        return f"{name} {self.H} × {self.N}" + ("" if self.T == 35 else f", T = {self.T}")


def kernels_present() -> list[str]:
    """The fast kernels that run on this machine."""
    ones, weights = torch.ones(1, 1), functional.Weights(torch.ones(1, 1), torch.ones(1, 1))
    found = []
    for kernel in ("eager", "c"):
        with kernels.using(kernel):
            found.append(kernels.kernel_for(ones, ones, (ones,), weights))
    return sorted(set(found), reverse=True)


class Problem:
    """The input, the gradient that comes from above, and the weights, alike for all rivals."""

    def __init__(self, size: Size, device: str = "cpu") -> None:
        self.size, self.device = size, device
        generator = torch.Generator().manual_seed(1111)
        shape = (size.T, size.N, size.H)
        self.x = torch.randn(shape, generator=generator).to(device).requires_grad_()
        self.grad = torch.randn(shape, generator=generator).to(device)
        torch.manual_seed(1111)
        self.weights = getattr(nn, size.cell)(size.H, size.H).state_dict()

    def backward(self, z: Tensor, module: nn.Module) -> object:
        """The gradients for the input and all weights."""
        return torch.autograd.grad(z, [self.x, *module.parameters()], self.grad)

    def torch(self) -> Callable[[], object]:
        """Torch's module, without noise."""
        layer = getattr(nn, self.size.cell)(self.size.H, self.size.H, device=self.device)
        layer.load_state_dict(self.weights)
        return lambda: self.backward(layer(self.x)[0], layer)

    def noisy(self, kernel: str) -> Callable[[], object]:
        """Ours, drawing the noise included."""
        H = self.size.H
        law, device = noise.Gaussian(GAMMA), self.device
        layer = getattr(noisin, self.size.cell)(H, H, noise=law, device=device)
        layer.load_state_dict(self.weights)

        def run() -> object:
            with kernels.using(kernel):
                return self.backward(layer(self.x)[0], layer)

        return run

    def clean(self) -> Callable[[], object]:
        """Ours without noise, by the C kernel, as in training."""
        layer = getattr(noisin, self.size.cell)(self.size.H, self.size.H)
        layer.load_state_dict(self.weights)

        def run() -> object:
            with kernels.everywhere("c"):
                return self.backward(layer(self.x)[0], layer)

        return run

    def loop(self) -> Callable[[], object]:
        """A loop over torch's cell."""
        H, device = self.size.H, self.device
        cell = getattr(nn, f"{self.size.cell}Cell")(H, H, device=device)
        cell.load_state_dict({k.removesuffix("_l0"): v for k, v in self.weights.items()})
        zeros = self.x.new_zeros(self.size.N, self.size.H)
        run = looped_lstm if self.size.cell == "LSTM" else looped
        return lambda: self.backward(run(cell, self.x, zeros), cell)

    def limit(self) -> Callable[[], object]:
        """The products of forward and backward, in the fewest and largest pieces there can be.

        ``W x`` of all steps, ``U z`` step by step, and back: ``Uᵀ d`` step by step, then ``Wᵀ d``
        and the gradients of W and U over all steps, with d the gradient of the gates. Each is left
        to the candidate that is fastest now.
        """
        parts = [fastest(candidates) for candidates in self._products()]
        return lambda: [part() for part in parts]

    def _products(self) -> Iterator[list[Callable[[], object]]]:
        """The candidates for each product, or for those of all steps."""
        T, N, H = self.size.T, self.size.N, self.size.H
        G = GATES[self.size.cell] * H
        W, U = self.weights["weight_ih_l0"], self.weights["weight_hh_l0"]
        x, z = self.x.detach().view(T * N, H), self.grad.view(T * N, H)
        d = torch.randn(T * N, G)
        for kind, a, b in (
            ("input", x, W.t()), ("back", d, W), ("weights", d.t(), x), ("weights", d.t(), z)
        ):  # fmt: skip
            others = [c.product for c in LAYER.candidates.values() if c.runs(a, b)]
            yield [partial(product, a, b) for product in (LAYER.kinds[kind], *others)]
        for rows, w in ((z, U.t()), (d, U)):
            steps = torch.split(rows, N)
            yield [
                partial(in_place, steps, w),
                *([partial(packed, steps, w)] if can_pack() else []),
            ]


def fastest(candidates: list[Callable[[], object]]) -> Callable[[], object]:
    """The one whose median over some rounds is the lowest."""
    rounds = [[seconds(candidate) for candidate in candidates] for _ in range(6)][1:]
    medians = [median(times) for times in zip(*rounds, strict=True)]
    return candidates[medians.index(min(medians))]


def in_place(steps: Sequence[Tensor], w: Tensor) -> None:
    """The products of single steps, added to one buffer."""
    out = steps[0].new_zeros(len(steps[0]), w.shape[1])
    for step in steps:
        out.addmm_(step, w)


def packed(steps: Sequence[Tensor], w: Tensor) -> None:
    """The same by oneDNN, which lays out w beforehand, as torch's LSTM does."""
    laid_out = torch.ops.mkldnn._reorder_linear_weight(w.t().contiguous(), len(steps[0]))
    for step in steps:
        torch.ops.mkldnn._linear_pointwise(step, laid_out, None, "none", [], "")


def can_pack() -> bool:
    """Whether this torch has oneDNN's products with a matrix packed beforehand."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def looped_lstm(cell: nn.LSTMCell, x: Tensor, zeros: Tensor) -> Tensor:
    """Algorithm 1 with an LSTM."""
    z, c, zs = zeros, zeros, []
    for x_t in x:
        h, c = cell(x_t, (z, c))
        z = h * (1 + GAMMA * torch.randn_like(h))
        zs.append(z)
    return torch.stack(zs)


def looped(cell: nn.Module, x: Tensor, zeros: Tensor) -> Tensor:
    """Algorithm 1 with a cell whose state is one tensor."""
    z, zs = zeros, []
    for x_t in x:
        h = cell(x_t, z)
        z = h * (1 + GAMMA * torch.randn_like(h))
        zs.append(z)
    return torch.stack(zs)
