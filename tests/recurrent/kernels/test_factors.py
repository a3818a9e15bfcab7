"""Factors on the transition, in the kernels: zoneout and a mask on the update."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.library import opcheck
from torch.testing import assert_close

from noisin.errors import InvalidValue, Unsupported
from noisin.recurrent import kernels
from noisin.recurrent.cell import KERNEL_CELLS as CELLS
from noisin.recurrent.functional import Factors, Weights
from noisin.recurrent.kernels import gpu, layer
from noisin.recurrent.kernels.choice import recurrence_for
from noisin.recurrent.kernels.plan import Plan
from tests import pairwise
from tests.compiler import needs_compiler
from tests.recurrent.kernels.test_masks import SIZES
from tests.recurrent.kernels.test_operator import described

F = 3
KERNELS = [pytest.param("c", marks=needs_compiler), "eager"]
WHICH = ("all", "h", "c")


class Problem:
    """A layer with random tensors: those to differentiate by, noise, a mask and factors."""

    def __init__(
        self, plan: Plan, H: int, dtype: torch.dtype, which: str = "all", masked: bool = False,
        P: int = 0,
    ) -> None:  # fmt: skip
        cell, S, Z = plan.cell, sum(plan.sizes), P or H

        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, dtype=dtype).div_(shape[-1] ** 0.5).requires_grad_()

        rows, self.plan, self.n = cell.recurrent * H, plan, 1 + cell.carry
        self.inputs = [draw(S, F), *(draw(plan.N, size) for size in (Z, H)[: self.n])]
        self.inputs += [draw(rows, F), draw(rows, Z), draw(rows), draw(rows)]
        self.inputs += [draw(Z, H)] if P else []
        self.eps, self.mask = draw(S, Z).detach(), draw(S, Z).detach() if masked else None
        some = {"keep_h": which != "c", "keep_c": cell.memory, "update": cell.slots > 1}
        some |= dict.fromkeys(("keep_c", "update"), False) if which == "h" else {}
        self.factors = Factors(
            *(
                torch.rand(S, Z if name == "keep_h" else H, dtype=dtype) if wanted else None
                for name, wanted in some.items()
            )
        )

    def outputs(self, kernel: str, *inputs: Tensor, factors: Factors | None = None) -> Any:
        x, state = inputs[0], tuple(inputs[1 : 1 + self.n])
        given = (x, self.eps, state, Weights(*inputs[1 + self.n :]), self.mask)
        factors = self.factors if factors is None else factors
        with kernels.using(kernel):
            assert kernels.kernel_for(*given, factors) == kernel
            z, final = kernels.run(self.plan, *given, factors)
        return (z, *final)

    def run(self, kernel: str, **options: Any) -> list[Tensor]:
        """The outputs and the gradients."""
        found = self.outputs(kernel, *self.inputs, **options)
        loss = found[0].square().sum() + sum(s.sin().sum() for s in found[1:])
        return [*found, *torch.autograd.grad(loss, self.inputs)]


@pytest.mark.parametrize(
    ("kernel", "cell", "mode", "sizes", "reverse", "H", "dtype", "which", "masked"),
    [
        pytest.param(*row, marks=needs_compiler if row[0] == "c" else ())
        for row in pairwise.table(
            ("c", "eager"), (*CELLS, "lstm-proj"), ("multiplicative", "additive"), SIZES,
            (False, True), (1, 5, 33), (torch.float32, torch.float64), WHICH, (False, True),
            where=lambda _k, cell, _m, _s, _r, _H, _d, which, masked: (
                not (masked and cell == "gru-state") and not (which == "c" and "elman" in cell)
            ),
        )
    ],
)  # fmt: skip
def test_values_and_gradients_are_those_of_the_reference(
    kernel: str, cell: str, mode: Any, sizes: str, reverse: bool, H: int, dtype: torch.dtype,
    which: str, masked: bool,
) -> None:  # fmt: skip
    plan = Plan(CELLS[cell.removesuffix("-proj")], mode, SIZES[sizes], reverse)
    problem = Problem(plan, H, dtype, which, masked, P=(H + 1) // 2 if "proj" in cell else 0)
    expected = problem.run("reference")
    tolerance = {torch.float32: 2e-4, torch.float64: 1e-11}[dtype]
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            found = problem.run(kernel)
        finally:
            torch.set_num_threads(1)
        for a, b in zip(found, expected, strict=True):
            assert_close(a, b, rtol=tolerance, atol=tolerance * float(b.detach().abs().max()))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("cell", [*CELLS, "lstm-proj"])
def test_gradients_by_differences_and_second_derivatives(kernel: str, cell: str) -> None:
    plan = Plan(CELLS[cell.removesuffix("-proj")], "multiplicative", (3, 2))
    problem = Problem(plan, 3, torch.float64, P=2 if "proj" in cell else 0)
    if "relu" not in cell:  # which has no derivative at zero
        assert gradcheck(
            lambda *inputs: problem.outputs(kernel, *inputs), problem.inputs, fast_mode=True
        )
    found = {}
    for name in ("reference", kernel):
        z = problem.outputs(name, *problem.inputs)[0]
        first = torch.autograd.grad(z.pow(3).sum(), problem.inputs, create_graph=True)
        found[name] = torch.autograd.grad(
            sum(d.square().sum() for d in first), problem.inputs, allow_unused=True
        )
    assert_close(found[kernel], found["reference"])


@pytest.mark.parametrize("kernel", ["reference", *KERNELS])
@pytest.mark.parametrize("cell", CELLS)
def test_ones_freeze_the_state_exactly_and_zeros_keep_nothing(kernel: str, cell: str) -> None:
    plan = Plan(CELLS[cell], "additive", (4, 4, 2))
    problem = Problem(plan, 5, torch.float32)
    problem.eps.zero_()
    state = problem.inputs[1:3]
    ones, zeros = (
        Factors(k, k if plan.cell.memory else None)
        for k in (torch.ones_like(problem.eps), torch.zeros_like(problem.eps))
    )
    z, *final = problem.outputs(kernel, *problem.inputs, factors=ones)
    kept = state[1] if plan.cell.carry and not plan.cell.memory else state[0]
    assert torch.equal(z, torch.cat([kept[:n] for n in plan.sizes]))
    if plan.cell.carry:
        assert torch.equal(final[1], state[1])
    without = problem.run(kernel, factors=Factors())
    tolerance = {"rtol": 1e-6, "atol": 1e-6}  # a constant in place of a factor rounds otherwise
    assert_close(problem.run(kernel, factors=zeros), without, **tolerance)


@pytest.mark.parametrize("kernel", KERNELS)
def test_factors_need_not_be_contiguous(kernel: str) -> None:
    problem = Problem(Plan(CELLS["lstm"], "multiplicative", (4, 4)), 5, torch.float64)
    held = problem.factors.map(lambda k: k[:1].expand_as(k))
    for factors in (problem.factors.map(lambda k: k.t().contiguous().t()), held):
        found = problem.run(kernel, factors=factors)
        assert_close(found, problem.run("reference", factors=factors))


@needs_compiler
@pytest.mark.parametrize("which", Factors._fields)
def test_a_factor_of_the_wrong_shape_is_refused_before_c_reads_it(which: str) -> None:
    problem = Problem(Plan(CELLS["lstm"], "multiplicative", (4, 4)), 5, torch.float64, P=3)
    shape = tuple(getattr(problem.factors, which).shape)
    for wrong in (torch.rand(8, 7).double(), torch.rand(7, shape[1]).double()):
        with pytest.raises(InvalidValue, match=rf"{which} must be .*\(8, {shape[1]}\)"):
            problem.run("c", factors=problem.factors._replace(**{which: wrong}))


def test_triton_leaves_them_to_the_eager_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "runs", lambda x: True)
    x: Any = SimpleNamespace(device=torch.device("cuda"), dtype=torch.float32)
    assert recurrence_for(x) == "triton"
    assert recurrence_for(x, factored=True) == "eager"
    problem = Problem(Plan(CELLS["lstm"], "multiplicative", (2, 2)), 3, torch.float64)
    x, state, w = problem.inputs[0], tuple(problem.inputs[1:3]), Weights(*problem.inputs[3:])
    with kernels.using("triton"):
        assert kernels.kernel_for(x, problem.eps, state, w) == "triton"
        assert kernels.kernel_for(x, problem.eps, state, w, None, problem.factors) == "eager"


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # opcheck's, from torch 2.14
@pytest.mark.parametrize("cell", ["lstm", "gru-read", "elman-tanh"])
def test_torchs_checks_of_the_operator(cell: str) -> None:
    """With factors, which it lists last; values and gradients are those of the layer."""
    plan = Plan(CELLS[cell], "multiplicative", (3, 3, 1))
    problem = Problem(plan, 4, torch.float64)
    state, w = tuple(problem.inputs[1 : 1 + problem.n]), Weights(*problem.inputs[1 + problem.n :])
    inputs = layer.joined(problem.inputs[0], problem.eps, state, w, None)
    arguments = (*inputs, *described(plan), True, *problem.factors)
    with kernels.using("eager"):
        opcheck(torch.ops.noisin.layer.default, arguments)
        z, carry, *kept = torch.ops.noisin.layer(*arguments)
        final = (plan.last(z), *[carry][: problem.n - 1])
        loss = z.square().sum() + sum(s.sin().sum() for s in final)
        found = [z, *final, *torch.autograd.grad(loss, problem.inputs)]
    expected = problem.run("eager")
    assert_close(found, expected, rtol=0, atol=0)
    needs = [t is not None and t.requires_grad for t in inputs]
    plain = [t.detach() if isinstance(t, Tensor) else t for t in arguments[: len(inputs) + 4]]
    gates, carries = (t.detach() for t in kept)
    d_carry = torch.randn_like(carry) if plan.cell.carry else None
    back = (*plain, needs, gates, z.detach(), carries, torch.randn_like(z), d_carry)
    with kernels.using("eager"):
        opcheck(torch.ops.noisin.layer_backward.default, (*back, *problem.factors))
    learned = problem.factors._replace(keep_h=problem.factors.keep_h.clone().requires_grad_())
    with pytest.raises(Unsupported, match="cannot differentiate by noise or a mask"):
        torch.ops.noisin.layer(*arguments[: len(inputs) + 5], *learned)[0].sum().backward()
