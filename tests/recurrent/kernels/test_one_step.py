"""One step at a time, as in sampling and reinforcement learning: the product is a library's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.recurrent import kernels
from noisin.recurrent.cell import KERNEL_CELLS as CELLS
from noisin.recurrent.functional import Weights
from noisin.recurrent.kernels import compiled, layer, native
from noisin.recurrent.kernels.plan import Plan
from tests.compiler import needs_compiler
from tests.pairwise import table

F = 3


def inputs_of(plan: Plan, H: int, dtype: torch.dtype) -> tuple[list[Tensor], Tensor, Tensor]:
    """The inputs to differentiate by, the noise and a mask."""

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=dtype).div_(shape[-1] ** 0.5).requires_grad_()

    rows = plan.cell.recurrent * H
    state = [draw(plan.N, H) for _ in range(1 + plan.cell.carry)]
    weights = [draw(rows, F), draw(rows, H), draw(rows), draw(rows)]
    eps, mask = draw(plan.N, H).detach(), draw(plan.N, H).detach()
    return [draw(plan.N, F), *state, *weights], eps, mask


def run(kernel: str, plan: Plan, inputs: list[Tensor], eps: Tensor, mask: Any = None) -> Any:
    n = 1 + plan.cell.carry
    with kernels.using(kernel):
        z, final = kernels.run(
            plan, inputs[0], eps, tuple(inputs[1 : 1 + n]), Weights(*inputs[1 + n :]), mask
        )
    return (z, *final)


@needs_compiler
@pytest.mark.parametrize(
    ("cell", "mode", "reverse", "masked", "N", "H", "dtype", "threads", "library"),
    table(
        CELLS, ("multiplicative", "additive"), (False, True), (False, True), (1, 8, 100),
        (1, 9, 650), (torch.float32, torch.float64), (1, 2), ("mkl", "onednn", "c"),
        where=lambda cell, mode, reverse, masked, *_: CELLS[cell].masks or not masked,
    ),
)  # fmt: skip
def test_values_and_gradients_are_those_of_the_reference(
    cell: str, mode: Any, reverse: bool, masked: bool, N: int, H: int, dtype: torch.dtype,
    threads: int, library: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("NOISIN_GEMM", library)
    plan = Plan(CELLS[cell], mode, (N,), reverse)
    inputs, eps, mask = inputs_of(plan, H, dtype)
    found = {}
    torch.set_num_threads(threads)
    try:
        for kernel in ("reference", "c"):
            values = run(kernel, plan, inputs, eps, mask if masked else None)
            loss = sum((v.sin() * v).sum() for v in values)
            found[kernel] = (*values, *torch.autograd.grad(loss, inputs))
    finally:
        torch.set_num_threads(1)
    tolerance = {torch.float32: 2e-4, torch.float64: 1e-11}[dtype]
    for a, b in zip(found["c"], found["reference"], strict=True):
        assert_close(a, b, rtol=tolerance, atol=tolerance * float(b.detach().abs().max()))


@needs_compiler
@pytest.mark.parametrize("cell", CELLS)
def test_one_step_lays_out_no_weights(cell: str) -> None:
    """Which would take as long as the product: neither direction has room for them."""
    for T in (1, 2):
        plan = Plan(CELLS[cell], "multiplicative", (4,) * T)
        for name in ("forward", "backward"):
            alone = native._alone(plan, None)
            args = (plan, 8, 0, 1, 0, False, alone, torch.float32)
            assert (native._prepared(compiled.library(), name, *args).room == 0) == (T == 1)


@pytest.mark.parametrize("kernel", ["eager", pytest.param("c", marks=needs_compiler)])
@pytest.mark.parametrize("T", [1, 3])
def test_no_gradient_of_a_state_that_needs_none(kernel: str, T: int) -> None:
    """And the others are what they are where it needs one."""
    plan = Plan(CELLS["gru-state"], "multiplicative", (4,) * T)
    x, z0 = torch.randn(4 * T, F, requires_grad=True), torch.randn(4, 5)
    weights, eps = Weights(torch.randn(15, F), torch.randn(15, 5)), torch.randn(4 * T, 5)
    found = []
    for start in (z0, z0.clone().requires_grad_()):
        with kernels.using(kernel):
            z, _ = kernels.run(plan, x, eps, (start,), weights)
        found.append(torch.autograd.grad(z.sum(), x)[0])
    assert_close(*found)


def test_without_gradients_there_is_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither under no_grad nor where no input requires any: it costs as much as a small step."""
    monkeypatch.setattr(layer, "_LayerFunction", None)
    rnn = noisin.LSTM(F, 4, noise=noise.Gaussian(0.5))
    with torch.no_grad():
        rnn(torch.randn(1, 2, F))
    rnn.requires_grad_(False)
    rnn(torch.randn(1, 2, F))
    rnn.requires_grad_(True)
    with pytest.raises(AttributeError, match="apply"):
        rnn(torch.randn(1, 2, F))


@pytest.mark.parametrize("cell", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("T", [1, 3])
def test_the_state_has_memory_of_its_own(cell: str, T: int) -> None:
    """What is done to the output in place must not reach the state that is carried on."""
    rnn = getattr(noisin, cell)(F, 4, noise=noise.Gaussian(0.5))
    with torch.no_grad():
        z, state = rnn(torch.randn(T, 2, F))
    h = state[0] if cell == "LSTM" else state
    before = h.clone()
    z.zero_()
    assert torch.equal(h, before)
    assert h.untyped_storage().nbytes() == h.numel() * h.element_size()
