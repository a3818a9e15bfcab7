"""Masks on what the recurrence reads, in the kernels: values, gradients, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from noisin.errors import InvalidValue, Unsupported
from noisin.recurrent import functional, kernels
from noisin.recurrent.cell import KERNEL_CELLS
from noisin.recurrent.functional import Weights
from noisin.recurrent.kernels import gemm, masks, native
from noisin.recurrent.kernels.plan import Plan
from tests import pairwise
from tests.compiler import needs_compiler

F = 3
CELLS = [name for name, cell in KERNEL_CELLS.items() if cell.masks]
SIZES = {"full": (4, 4, 4), "ragged": (5, 3, 3, 1), "one step": (3,), "chunks": (97, 97, 60)}


def tensors_of(
    plan: Plan, H: int, dtype: torch.dtype, per_gate: bool = False
) -> tuple[list[Tensor], Tensor, Tensor]:
    """The inputs to differentiate by, the noise and the mask."""
    cell, N, S = plan.cell, plan.N, sum(plan.sizes)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=dtype).div_(shape[-1] ** 0.5).requires_grad_()

    rows = cell.recurrent * H
    state = [draw(N, H) for _ in range(1 + cell.carry)]
    weights = [draw(rows, F), draw(rows, H), draw(rows), draw(rows)]
    mask = draw(S, rows if per_gate else H).detach() + 0.5
    return [draw(S, F), *state, *weights], draw(S, H).detach(), mask


def run(kernel: str, plan: Plan, inputs: list[Tensor], eps: Tensor, mask: Any) -> tuple[Any, ...]:
    n = 1 + plan.cell.carry
    x, state, w = inputs[0], tuple(inputs[1 : 1 + n]), Weights(*inputs[1 + n :])
    with kernels.using(kernel):
        assert kernels.kernel_for(x, eps, state, w, mask) == kernel
        z, final = kernels.run(plan, x, eps, state, w, mask)
    loss = z.square().sum() + sum(s.sin().sum() for s in final)
    return (z, *final, *torch.autograd.grad(loss, inputs))


@pytest.mark.parametrize(
    ("kernel", "cell", "mode", "sizes", "reverse", "H", "dtype", "per_gate"),
    [
        pytest.param(*row, marks=needs_compiler if row[0] == "c" else ())
        for row in pairwise.table(
            ("c", "eager"), CELLS, ("multiplicative", "additive"), SIZES, (False, True),
            (1, 5, 33), (torch.float32, torch.float64), (False, True),
        )
    ],
)  # fmt: skip
def test_values_and_gradients_are_those_of_the_reference(
    kernel: str, cell: str, mode: Any, sizes: str, reverse: bool, H: int, dtype: torch.dtype,
    per_gate: bool,
) -> None:  # fmt: skip
    plan = Plan(KERNEL_CELLS[cell], mode, SIZES[sizes], reverse)
    inputs, eps, mask = tensors_of(plan, H, dtype, per_gate)
    tolerance = {torch.float32: 2e-4, torch.float64: 1e-11}[dtype]
    expected = run("reference", plan, inputs, eps, mask)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            found = run(kernel, plan, inputs, eps, mask)
        finally:
            torch.set_num_threads(1)
        for a, b in zip(found, expected, strict=True):
            assert_close(a, b, rtol=tolerance, atol=tolerance * float(b.detach().abs().max()))


@pytest.mark.parametrize("kernel", [pytest.param("c", marks=needs_compiler), "eager"])
def test_a_mask_need_not_be_contiguous(kernel: str) -> None:
    plan = Plan(KERNEL_CELLS["lstm"], "multiplicative", (4, 4))
    inputs, eps, mask = tensors_of(plan, 5, torch.float64)
    expected = run("reference", plan, inputs, eps, mask)
    for view in (mask.t().contiguous().t(), torch.stack([mask, mask], -1)[..., 0]):
        assert not view.is_contiguous()
        assert_close(run(kernel, plan, inputs, eps, view), expected)
    held = mask[:1].expand_as(mask)
    assert_close(run(kernel, plan, inputs, eps, held), run("reference", plan, inputs, eps, held))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("sizes", SIZES)
def test_equal_masks_of_all_gates_are_one(cell: str, sizes: str) -> None:
    plan = Plan(KERNEL_CELLS[cell], "multiplicative", SIZES[sizes])
    inputs, eps, mask = tensors_of(plan, 5, torch.float64)
    every = mask.repeat(1, plan.cell.recurrent)
    expected = run("reference", plan, inputs, eps, mask)
    assert_close(run("reference", plan, inputs, eps, every), expected)


def test_each_gate_reads_through_its_own_mask() -> None:
    w_hh, z, m = torch.randn(8, 2), torch.randn(3, 2), torch.randn(3, 4, 2)
    w = Weights(torch.randn(8, 1), w_hh, None, torch.randn(8))
    found = w.recur(functional.masked(z, m.flatten(1))).view(3, 4, 2)
    for g in range(4):
        own = (z * m[:, g]) @ w_hh[2 * g : 2 * g + 2].t() + w.b_hh[2 * g : 2 * g + 2]
        assert_close(found[:, g], own)


@pytest.mark.parametrize("kernel", ["reference", "eager", pytest.param("c", marks=needs_compiler)])
@pytest.mark.parametrize("sizes", ["full", "ragged", "one step"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("per_gate", [False, True])
def test_masks_that_are_held_are_those_of_each_step(
    kernel: str, sizes: str, reverse: bool, per_gate: bool
) -> None:
    plan = Plan(KERNEL_CELLS["lstm"], "multiplicative", SIZES[sizes], reverse)
    inputs, eps, mask = tensors_of(plan, 5, torch.float64, per_gate)
    held = mask[: plan.N]
    every = torch.cat([held[:n] for n in plan.sizes])
    expected = run("reference", plan, inputs, eps, every)
    assert_close(run(kernel, plan, inputs, eps, held), expected)


@pytest.mark.parametrize("kernel", ["reference", "eager", pytest.param("c", marks=needs_compiler)])
@pytest.mark.parametrize("held", [False, True])
def test_each_gate_reads_the_input_through_its_own_mask(kernel: str, held: bool) -> None:
    plan = Plan(KERNEL_CELLS["lstm"], "multiplicative", (4, 4, 4))
    inputs, eps, mask = tensors_of(plan, 5, torch.float64)
    R, x, state, w = 4, inputs[0], tuple(inputs[1:3]), Weights(*inputs[3:])
    x_mask = torch.rand(4 if held else 12, R, F, dtype=torch.float64)
    with kernels.using(kernel):
        given = (plan, x, eps, state, w, mask)
        z, final = kernels.run(*given, x_mask=x_mask.flatten(1))
    loss = z.square().sum() + sum(s.sin().sum() for s in final)
    found = z, *torch.autograd.grad(loss, inputs)
    # The same by an input as wide as all gates, of which each has weights for its part alone.
    wide = (x.unsqueeze(1) * (x_mask.repeat(3, 1, 1) if held else x_mask)).flatten(1)
    blocks = torch.block_diag(*w.w_ih.chunk(R))
    with kernels.using("reference"):
        z, final = kernels.run(plan, wide, eps, state, w._replace(w_ih=blocks), mask)
    loss = z.square().sum() + sum(s.sin().sum() for s in final)
    assert_close(found, (z, *torch.autograd.grad(loss, inputs)))


@pytest.mark.parametrize("c", [pytest.param(True, marks=needs_compiler), False])
@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
@pytest.mark.parametrize(("T", "N", "H", "J"), [(1, 1, 1, 1), (3, 4, 5, 7), (7, 29, 40, 33)])
def test_the_products_of_all_steps_are_those_of_masked_copies(
    T: int, N: int, H: int, J: int, dtype: torch.dtype, tolerance: float, held: bool, c: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Each gate's own; of gates whose rows are apart, as those of a backward are."""
    if not c:
        monkeypatch.setattr(gemm, "runs", lambda a, b: False)
    x, w = torch.randn(T * N, J, dtype=dtype), torch.randn(4 * H, J, dtype=dtype)
    d = torch.randn(T * N, 4 * H + 3, dtype=dtype)[:, : 4 * H]
    m = torch.rand(N if held else T * N, 4, J, dtype=dtype)
    every = m.repeat(T, 1, 1) if held else m
    for threads in (1, 3):
        torch.set_num_threads(threads)
        try:
            found = masks.project(x, m.flatten(1), w)
            of_weights = masks.of_weights(d, x, m.flatten(1))
            back = masks.project_back(d, m.flatten(1), w)
        finally:
            torch.set_num_threads(1)
        gates, copies = w.view(4, H, J), x.unsqueeze(1) * every
        expected = torch.einsum("sgi,ghi->sgh", copies, gates).flatten(1)
        assert_close(found, expected, rtol=tolerance, atol=tolerance * 40)
        of_gates = torch.einsum("sgh,sgi->ghi", d.unflatten(1, (4, H)), copies).flatten(0, 1)
        assert_close(of_weights, of_gates, rtol=tolerance, atol=tolerance * 200)
        read = torch.einsum("sgh,ghi->sgi", d.unflatten(1, (4, H)), gates)
        assert_close(back, (read * every).sum(1), rtol=tolerance, atol=tolerance * 200)


def test_masks_of_the_input_are_for_gates_that_read_it() -> None:
    plan = Plan(KERNEL_CELLS["gru-read"], "multiplicative", (4, 4))
    inputs, eps, _ = tensors_of(plan, 5, torch.float64)
    x, state, w = inputs[0], tuple(inputs[1:3]), Weights(*inputs[3:])
    with pytest.raises(Unsupported, match="x_mask is for the gates of an LSTM"):
        kernels.run(plan, x, eps, state, w, x_mask=torch.ones(8, 3 * F))


def test_a_gru_with_noise_on_its_state_is_refused() -> None:
    plan = Plan(KERNEL_CELLS["gru-state"], "multiplicative", (4, 4))
    inputs, eps, mask = tensors_of(plan, 5, torch.float64)
    with pytest.raises(Unsupported, match="Use site='read'"):
        run("eager", plan, inputs, eps, mask)


@needs_compiler
@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda m: m[:-1], r"\(7, 5\)"),
        (lambda m: m.repeat(2, 1), r"\(16, 5\)"),
        (lambda m: m[:, 1:], r"\(8, 4\)"),
        (lambda m: m[:3], r"\(3, 5\)"),
        (lambda m: m.repeat(1, 3), r"\(8, 15\)"),
    ],
)
def test_a_mask_of_the_wrong_shape_is_refused_before_c_reads_it(change: Any, got: str) -> None:
    plan = Plan(KERNEL_CELLS["lstm"], "multiplicative", (4, 4))
    inputs, eps, mask = tensors_of(plan, 5, torch.float64)
    with pytest.raises(InvalidValue, match=rf"mask must be .*\(8, 5\).* got {got}"):
        run("c", plan, inputs, eps, change(mask))


@needs_compiler
@pytest.mark.parametrize("name", ["forward", "backward"])
def test_the_last_look_before_pointers_are_passed(name: str) -> None:
    """Of the kind, the device and the memory of a mask, in both directions."""
    H, plan = 5, Plan(KERNEL_CELLS["lstm"], "multiplicative", (3, 2))
    rows = {key: torch.rand(5, H) for key in ("eps", "z", "carries", "d_z")}
    states = {key: torch.rand(3, H) for key in ("z0", "carry", "d_state", "d_carry")}
    gates = {key: torch.rand(5, 4 * H) for key in ("gates", "d_gates")}
    names = {
        "forward": ("gates", "bias", "u", "w_hr", "z0", "carry", "eps", "mask", "z", "carries"),
        "backward": ("gates", "u", "w_hr", "z0", "carry", "eps", "mask", "z", "carries", "d_z",
                     "d_state", "d_carry", "d_gates", "d_projected"),
    }[name]  # fmt: skip
    u = torch.rand(4 * H, H)
    every = {**rows, **states, **gates, "u": u, "mask": torch.rand(5, H)}
    every |= dict.fromkeys(("bias", "w_hr", "d_projected"))
    given = {key: every[key] for key in names}
    native._call(name, plan, u, **given)
    unallocated = torch.rand(5, H)
    unallocated.untyped_storage().resize_(0)
    for wrong in (
        torch.rand(5, H).double(),
        torch.rand(5, H, device="meta"),
        torch.rand(H, 5).t(),
        torch.rand(4, H),
        torch.rand(3, 3 * H),
        unallocated,
    ):
        with pytest.raises(InvalidValue, match="kernels: mask must be"):
            native._call(name, plan, u, **given | {"mask": wrong})


@pytest.mark.parametrize("kernel", [pytest.param("c", marks=needs_compiler), "eager"])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("per_gate", [False, True])
def test_second_derivatives_are_those_of_the_reference(
    kernel: str, cell: str, per_gate: bool
) -> None:
    """Which recomputes the layer: a mask that it forgot would change the first ones too."""
    plan = Plan(KERNEL_CELLS[cell], "multiplicative", (3, 3, 2))
    inputs, eps, mask = tensors_of(plan, 4, torch.float64, per_gate)
    n = 1 + plan.cell.carry
    found = {}
    for name in ("reference", kernel):
        with kernels.using(name):
            z, _ = kernels.run(
                plan, inputs[0], eps, tuple(inputs[1 : 1 + n]), Weights(*inputs[1 + n :]), mask
            )
        first = torch.autograd.grad(z.pow(3).sum(), inputs, create_graph=True)
        second = torch.autograd.grad(sum(d.square().sum() for d in first), inputs)
        found[name] = (first, second)
    assert_close(found[kernel], found["reference"])
