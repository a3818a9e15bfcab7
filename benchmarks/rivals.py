"""One recurrent layer, forward and backward, as each rival computes it.

``torch``
    torch's module, without noise.
``loop``
    a loop over torch's cell with Gaussian noise: what a researcher would write.
``gemms``, ``packed``
    the matrix products alone, without which no layer can be computed: the limit. ``packed`` leaves
    those of the recurrence to oneDNN, which torch's LSTM rests on.
``eager``, ``c``
    noisin's module with Gaussian noise, by either kernel, drawing the noise included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import noisin
from noisin import noise
from noisin.recurrent import functional, kernels

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

    def __init__(self, size: Size) -> None:
        self.size = size
        generator = torch.Generator().manual_seed(1111)
        shape = (size.T, size.N, size.H)
        self.x = torch.randn(shape, generator=generator).requires_grad_()
        self.grad = torch.randn(shape, generator=generator)
        torch.manual_seed(1111)
        self.weights = getattr(nn, size.cell)(size.H, size.H).state_dict()

    def backward(self, z: Tensor, module: nn.Module) -> object:
        """The gradients for the input and all weights."""
        return torch.autograd.grad(z, [self.x, *module.parameters()], self.grad)

    def torch(self) -> Callable[[], object]:
        """Torch's module, without noise."""
        layer = getattr(nn, self.size.cell)(self.size.H, self.size.H)
        layer.load_state_dict(self.weights)
        return lambda: self.backward(layer(self.x)[0], layer)

    def noisy(self, kernel: str) -> Callable[[], object]:
        """Ours, drawing the noise included."""
        H = self.size.H
        layer = getattr(noisin, self.size.cell)(H, H, noise=noise.Gaussian(GAMMA))
        layer.load_state_dict(self.weights)

        def run() -> object:
            with kernels.using(kernel):
                return self.backward(layer(self.x)[0], layer)

        return run

    def loop(self) -> Callable[[], object]:
        """A loop over torch's cell."""
        cell = getattr(nn, f"{self.size.cell}Cell")(self.size.H, self.size.H)
        cell.load_state_dict({k.removesuffix("_l0"): v for k, v in self.weights.items()})
        zeros = self.x.new_zeros(self.size.N, self.size.H)
        run = looped_lstm if self.size.cell == "LSTM" else looped
        return lambda: self.backward(run(cell, self.x, zeros), cell)

    def gemms(self, packed: bool = False) -> Callable[[], object]:
        """The products of forward and backward, in the fewest and largest pieces there can be.

        ``W x`` of all steps, ``U z`` step by step, and back: ``Uᵀ d`` step by step, then ``Wᵀ d``
        and the gradients of W and U over all steps, with d the gradient of the gates. ``packed``
        lays U out for the products of the steps beforehand, as torch's LSTM does.
        """
        T, N, H = self.size.T, self.size.N, self.size.H
        G = GATES[self.size.cell] * H
        W, U = self.weights["weight_ih_l0"], self.weights["weight_hh_l0"]
        x, z = self.x.detach().view(T * N, H), self.grad.view(T * N, H)
        gates, d, dx, dz = aligned(T * N, G), aligned(T * N, G), aligned(T * N, H), aligned(N, H)
        dW, dU = aligned(G, H), aligned(G, H)
        d.normal_()
        steps = [slice(t * N, (t + 1) * N) for t in range(T)]

        def recur() -> None:
            for t in steps:
                gates[t].addmm_(z[t], U.t())
            for t in steps:
                torch.mm(d[t], U, out=dz)

        def recur_packed() -> None:
            there, back = pack(U, N), pack(U.t().contiguous(), N)
            for t in steps:
                product(z[t], there, None, "none", [], "")
            for t in steps:
                product(d[t], back, None, "none", [], "")

        pack = torch.ops.mkldnn._reorder_linear_weight if packed else None
        product = torch.ops.mkldnn._linear_pointwise if packed else None
        recurrence = recur_packed if packed else recur

        def run() -> None:
            torch.mm(x, W.t(), out=gates)
            recurrence()
            torch.mm(d, W, out=dx)
            torch.mm(d.t(), x, out=dW)
            torch.mm(d.t(), z, out=dU)

        return run


def can_pack() -> bool:
    """Whether this torch has oneDNN's products with a matrix packed beforehand."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def aligned(rows: int, columns: int) -> Tensor:
    """A matrix whose rows start on cache lines: products are written faster there."""
    return torch.zeros(rows, -(-columns // 16) * 16)[:, :columns]


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
