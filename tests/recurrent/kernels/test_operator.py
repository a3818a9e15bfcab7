"""The operator ``noisin::layer``: torch's own checks of it, and the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradgradcheck
from torch.library import opcheck
from torch.testing import assert_close

from noisin.errors import InvalidValue, Unsupported
from noisin.recurrent import kernels
from noisin.recurrent.cell import KERNEL_CELLS as CELLS
from noisin.recurrent.functional import Weights
from noisin.recurrent.kernels import eager, layer, native, operator, reference
from noisin.recurrent.kernels.plan import Outline, Plan
from tests.compiler import needs_compiler
from tests.pairwise import table
from tests.recurrent.kernels.test_kernels import SIZES, tensors_of, weighted

# Of opcheck itself, from torch 2.14 on.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

KERNELS = [pytest.param("c", marks=needs_compiler), "eager"]


def cases() -> Iterator[Any]:
    axes = (("c", "eager"), (*CELLS, "lstm-proj"), ("multiplicative", "additive"))
    for kernel, cell, mode, sizes, reverse, masked in table(
        *axes,
        ("full", "ragged"),
        (False, True),
        (False, True),
        where=lambda kernel, cell, mode, sizes, reverse, masked: (
            not (masked and cell == "gru-state")
        ),
    ):
        plan = Plan(CELLS[cell.removesuffix("-proj")], mode, SIZES[sizes], reverse)
        name = f"{kernel}-{cell}-{mode[:4]}-{sizes}-{reverse}-{masked}"
        marks = [needs_compiler] if kernel == "c" else []
        yield pytest.param(kernel, plan, cell == "lstm-proj", masked, id=name, marks=marks)


def arguments_of(
    plan: Plan, project: bool = False, masked: bool = False, keep: bool = True
) -> tuple[Any, ...]:
    """What the operator takes for a layer of this plan."""
    x, eps, state, w = tensors_of(plan, project, H=4)
    mask = torch.rand_like(eps) if masked else None
    return *layer.joined(x, eps, state, w, mask), *described(plan), keep


def described(plan: Plan) -> tuple[Any, ...]:
    name = next(name for name, spec in CELLS.items() if spec is plan.cell)
    return plan.outline.batch_sizes, name, plan.mode == "additive", plan.reverse


def reference_of(plan: Plan, arguments: tuple[Any, ...]) -> list[Tensor]:
    """z and the carry, by the reference."""
    x, eps, mask, z0, carry0, *weights = arguments[:10]
    state = (z0,) if carry0 is None else (z0, carry0)
    z, final = reference.run(plan, x, eps, state, Weights(*weights), mask)
    return [z, *final[1:]]


def outputs_of(plan: Plan, arguments: tuple[Any, ...]) -> list[Tensor]:
    """z and the carry, if there is one, by the operator."""
    z, carry, _, _ = torch.ops.noisin.layer(*arguments)
    return [z, carry] if plan.cell.carry else [z]


@pytest.mark.long
@pytest.mark.parametrize(("kernel", "plan", "project", "masked"), list(cases()))
def test_torchs_checks_and_the_reference(
    kernel: str, plan: Plan, project: bool, masked: bool
) -> None:
    """Schema, fake kernel, autograd and dynamic shapes; values and gradients, in both passes."""
    arguments = arguments_of(plan, project, masked)
    leaves = [t for t in arguments if isinstance(t, Tensor) and t.requires_grad]
    with kernels.using(kernel):
        opcheck(torch.ops.noisin.layer.default, arguments)
        outputs = outputs_of(plan, arguments)
        found = torch.autograd.grad(weighted(tuple(outputs)), leaves)
        opcheck(torch.ops.noisin.layer_backward.default, backward_arguments(plan, arguments))
    expected = reference_of(plan, arguments)
    assert_close(outputs, expected, rtol=1e-12, atol=1e-13)
    gradients = torch.autograd.grad(weighted(tuple(expected)), leaves)
    assert_close(found, gradients, rtol=1e-10, atol=1e-11)


def backward_arguments(plan: Plan, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    plain = [t.detach() if isinstance(t, Tensor) else t for t in arguments]
    needs = [bool(t is not None and t.requires_grad) for t in arguments[:11]]
    z, carry, gates, carries = torch.ops.noisin.layer(*plain)
    d_carry = torch.randn_like(carry) if plan.cell.carry else None
    return *plain[:-1], needs, gates, z, carries, torch.randn_like(z), d_carry


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("held", [False, True])
def test_masks_of_each_gate_on_input_and_state(kernel: str, held: bool) -> None:
    plan = Plan(CELLS["lstm"], "multiplicative", (3, 3))
    arguments = list(arguments_of(plan))
    x, eps, _, z0, carry0, *weights = arguments[:10]
    F, H = x.shape[1], eps.shape[1]
    mask, x_mask = (torch.rand(3 if held else 6, 4 * n, dtype=torch.float64) for n in (H, F))
    arguments[2], arguments[10] = mask, x_mask
    leaves = [t for t in arguments if isinstance(t, Tensor) and t.requires_grad]
    with kernels.using(kernel):
        outputs = outputs_of(plan, tuple(arguments))
        found = torch.autograd.grad(weighted(tuple(outputs)), leaves)
    z, (_, carry) = reference.run(
        plan, x, eps, (z0, carry0), Weights(*weights), mask, x_mask=x_mask
    )
    assert_close(outputs, [z, carry])
    assert_close(found, torch.autograd.grad(weighted((z, carry)), leaves))


@pytest.mark.parametrize("sizes", [(3, 3, 3), (5, 3, 3, 1), (2,), (4, 2), (1, 1)])
@pytest.mark.parametrize("reverse", [False, True])
def test_an_outline_has_the_final_rows_of_its_plan(sizes: tuple[int, ...], reverse: bool) -> None:
    plan = Plan(CELLS["lstm"], "additive", sizes, reverse)
    steps = torch.arange(float(sum(sizes))).unsqueeze(1)
    for outline in (plan.outline, Outline(plan.cell, "additive", torch.tensor(sizes), reverse)):
        assert outline.sized(sum(sizes), sizes[0]) == plan
        assert torch.equal(outline.last(steps, sizes[0]), plan.last(steps))


@pytest.mark.parametrize(("rows", "N"), [(7, 3), (0, 0), (0, 2)])
def test_rows_that_are_not_whole_steps_are_refused(rows: int, N: int) -> None:
    with pytest.raises(InvalidValue, match=f"as the state has, {N}, got {rows} rows"):
        Outline(CELLS["lstm"], "additive").sized(rows, N)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_kernel_is_chosen_when_the_operator_runs(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    for name, recurrence in (("c", native), ("eager", eager)):
        for which in ("forward", "backward"):
            function = getattr(recurrence, which)
            monkeypatch.setattr(
                recurrence, which, lambda *a, f=function, n=name: ran.append(n) or f(*a)
            )
    arguments = arguments_of(Plan(CELLS["lstm"], "additive", (2, 2)))
    with kernels.using(kernel):
        torch.ops.noisin.layer(*arguments)[0].sum().backward()
    assert ran == [kernel] * 2


@pytest.mark.parametrize("keep", [True, False])
def test_nothing_is_kept_unless_asked(keep: bool) -> None:
    """And then a gradient is refused, not wrong."""
    plan = Plan(CELLS["lstm"], "additive", (2, 2))
    arguments = arguments_of(plan, keep=keep)
    z, _, gates, carries = torch.ops.noisin.layer(*arguments)
    assert (gates.numel() > 0, carries.numel() > 0) == (keep, keep)
    if not keep:
        with pytest.raises(Unsupported, match="the layer kept nothing for it"):
            z.sum().backward()


@pytest.mark.parametrize("which", [1, 2])
def test_gradients_of_noise_and_masks_are_refused(which: int) -> None:
    arguments = list(arguments_of(Plan(CELLS["lstm"], "additive", (2, 2)), masked=True))
    arguments[which].requires_grad_()
    with pytest.raises(Unsupported, match="cannot differentiate by noise or a mask"):
        torch.ops.noisin.layer(*arguments)[0].sum().backward()


@pytest.mark.parametrize("cell", ["lstm", "gru-state"])
def test_second_derivatives_and_batches_of_gradients(cell: str) -> None:
    plan = Plan(CELLS[cell], "multiplicative", (2, 2, 1))
    arguments = arguments_of(plan)
    leaves = [k for k, t in enumerate(arguments) if isinstance(t, Tensor) and t.requires_grad]

    def function(*values: Tensor) -> Any:
        given = list(arguments)
        for k, value in zip(leaves, values, strict=True):
            given[k] = value
        return tuple(outputs_of(plan, tuple(given)))

    values = [arguments[k] for k in leaves]
    assert gradgradcheck(function, values, fast_mode=True)
    z = function(*values)[0]
    batch = torch.randn(3, *z.shape, dtype=z.dtype)
    found = torch.autograd.grad(z, values, batch, is_grads_batched=True, retain_graph=True)
    for k, d_z in enumerate(batch):
        alone = torch.autograd.grad(z, values, d_z, retain_graph=True)
        assert_close([gradient[k] for gradient in found], list(alone))


def test_autocast_lowers_all_but_float64() -> None:
    arguments = arguments_of(Plan(CELLS["lstm"], "additive", (2, 2)))
    low = tuple(t.float() if isinstance(t, Tensor) else t for t in arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert {t.dtype for t in torch.ops.noisin.layer(*arguments)} == {torch.float64}
        found = torch.ops.noisin.layer(*low)
    assert {t.dtype for t in found} == {torch.bfloat16}
    assert_close(found[0].double(), torch.ops.noisin.layer(*arguments)[0], rtol=0.1, atol=0.05)


def test_every_cell_of_the_kernels_has_a_name() -> None:
    assert {operator._NAMES[spec.code] for spec in CELLS.values()} == set(CELLS)
