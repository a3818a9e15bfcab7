"""Sizes and tensors that do not go together are refused before C code reads or writes by them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.errors import InvalidValue
from noisin.recurrent import kernels
from noisin.recurrent.cell import KERNEL_CELLS as CELLS
from noisin.recurrent.functional import Weights
from noisin.recurrent.kernels import compiled, native
from noisin.recurrent.kernels.plan import Plan
from tests.compiler import needs_compiler

H = 5
PLAN = Plan(CELLS["lstm"], "multiplicative", (3, 2))


@pytest.mark.parametrize("sizes", [(), (2, 3), (3, 2, 3), (-1,), (2, -1), (2.5,), (2, None)])
def test_a_plan_of_impossible_sizes(sizes: Any) -> None:
    with pytest.raises(InvalidValue, match="Plan: expected the number of rows of each step"):
        Plan(CELLS["lstm"], "multiplicative", sizes)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([1, 2, 3], "none greater than the one before, got \\(1, 2, 3\\)"),
        ([3, 3, 0], "none less than 1"),
        ([8, -2], "none less than 1"),
        ([], "got \\(\\)"),
        ([3.0, 2.0, 1.0], "got \\(3.0"),
        ([[3, 2, 1]], "got \\(\\[3"),
        ([3, 2], "has 6 rows of data, and its batch_sizes add up to 5"),
        ([4, 3], "has 6 rows of data, and its batch_sizes add up to 7"),
        ([2**62, 2**62], "add up to 9223372036854775808"),
    ],
)
@pytest.mark.parametrize("feedback", [True, False])
def test_a_packed_sequence_that_contradicts_itself(
    sizes: list[Any], message: str, feedback: bool
) -> None:
    rnn = noisin.LSTM(3, H, noise=noise.Gaussian(0.5), feedback=feedback)
    packed = PackedSequence(torch.randn(6, 3), torch.tensor(sizes))
    with pytest.raises(InvalidValue, match=f"RNN: .*{message}"):
        rnn(packed)


def tensors(plan: Plan = PLAN, units: int = H) -> dict[str, Tensor]:
    """Of one layer, by name."""
    cell, S = plan.cell, sum(plan.sizes)
    shapes = {
        "x": (S, 3), "eps": (S, units), "z0": (plan.N, units), "c0": (plan.N, units),
        "w_ih": (cell.recurrent * units, 3), "w_hh": (cell.recurrent * units, units),
        "b_ih": (cell.recurrent * units,), "b_hh": (cell.recurrent * units,),
    }  # fmt: skip
    return {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}


def run(kernel: str, plan: Plan, t: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """Outputs and gradients."""
    state = (t["z0"], t["c0"]) if plan.cell.carry else (t["z0"],)
    weights = Weights(t["w_ih"], t["w_hh"], t["b_ih"], t["b_hh"])
    x = t["x"].detach().requires_grad_()
    with kernels.using(kernel):
        z, final = kernels.run(plan, x, t["eps"], state, weights)
    return (z, *final, *torch.autograd.grad(z.sum() + sum(s.sum() for s in final), [x]))


def unallocated(t: Tensor) -> Tensor:
    t = t.clone()
    t.untyped_storage().resize_(0)
    return t


WRONG = {
    "fewer rows of noise": ("eps", lambda t: t[:-1], "eps must be"),
    "more rows of noise": ("eps", lambda t: t.repeat(2, 1), "eps must be"),
    "fewer units of noise": ("eps", lambda t: t[:, 1:], "eps must be"),
    "noise without memory": ("eps", unallocated, "eps must be .* allocated"),
    "fewer rows of input": ("x", lambda t: t[:-1], "gates must be"),
    "more rows of state": ("z0", lambda t: t.repeat(2, 1), "z0 must be"),
    "fewer rows of state": ("z0", lambda t: t[:1], "z0 must be"),
    "fewer rows of memory": ("c0", lambda t: t[:1], "carry must be"),
    "fewer units of memory": ("c0", lambda t: t[:, 1:], "carry must be"),
    "weights of fewer gates": ("w_hh", lambda t: t[:H], "u must be"),
    "weights of more units": ("w_hh", lambda t: t.repeat(1, 2), "u must be"),
}


@needs_compiler
@pytest.mark.parametrize("wrong", WRONG)
def test_tensors_that_do_not_go_together(wrong: str) -> None:
    name, change, message = WRONG[wrong]
    given = tensors()
    with pytest.raises(InvalidValue, match=f"kernels: {message}"):
        run("c", PLAN, given | {name: change(given[name])})


@needs_compiler
@pytest.mark.parametrize("cell", CELLS)
def test_what_is_not_contiguous_or_negated_lazily(cell: str) -> None:
    plan = Plan(CELLS[cell], "multiplicative", (3, 2))
    given = tensors(plan)
    expected = run("reference", plan, given)
    for view in (
        lambda t: torch.stack([t, t], dim=-1)[..., 0],
        lambda t: t.t().contiguous().t(),
        lambda t: torch._neg_view(-t),
    ):
        found = run("c", plan, {name: view(t) for name, t in given.items()})
        assert_close(found, expected)


@needs_compiler
@pytest.mark.parametrize("sizes", [(0,), (0, 0), (3, 0), (1,)])
@pytest.mark.parametrize("units", [0, 1])
@pytest.mark.parametrize("cell", CELLS)
def test_what_is_empty(cell: str, units: int, sizes: tuple[int, ...]) -> None:
    plan = Plan(CELLS[cell], "additive", sizes)
    given = tensors(plan, units)
    assert_close(run("c", plan, given), run("reference", plan, given))


def arguments() -> dict[str, Any]:
    """Of the native backward, after a forward."""
    S, N = sum(PLAN.sizes), PLAN.N
    gates, eps, u = torch.rand(S, 4 * H), torch.rand(S, H), torch.rand(4 * H, H)
    state = [torch.rand(N, H), torch.rand(N, H)]
    return {
        "plan": PLAN, "gates": gates, "w_hh": u, "w_hr": None, "eps": eps, "mask": None,
        "state": state,
        "z": torch.rand(S, H), "carries": torch.rand(S, H), "d_z": torch.rand(S, H),
        "d_state": [torch.rand(N, H), torch.rand(N, H)],
    }  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"carries": None}, "carries must be .* got None"),
        ({"state": [torch.rand(3, H)]}, "carry must be .* got None"),
        ({"z": torch.rand(H, 5).t()}, "z must be a contiguous"),
        ({"z": torch.rand(5, H).double()}, "z must be .*float32.* got .*float64"),
        ({"d_z": torch.rand(5, H, device="meta")}, "d_z must be .* got .*meta"),
        ({"gates": torch.rand(5, 3 * H)}, "gates must be .*\\(5, 20\\)"),
        ({"d_state": [torch.rand(2, H), torch.rand(3, H)]}, "d_state must be"),
        ({"d_state": [torch.rand(3, H), torch.rand(3, 1)]}, "d_carry must be"),
    ],
)
def test_the_last_look_before_pointers_are_passed(change: dict[str, Any], message: str) -> None:
    native.backward(**arguments())
    with pytest.raises(InvalidValue, match=f"kernels: {message}"):
        native.backward(**arguments() | change)


@needs_compiler
def test_no_more_threads_than_blocks_of_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread has room of its own, and one without units would only wait."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 100_000)
    block = compiled.tiling(torch.float64).block
    for units in (1, block, block + 1, 3 * block):
        w_hh = torch.zeros(4 * units, units, dtype=torch.float64)
        plan = Plan(CELLS["lstm"], "additive", (10**6,))
        assert native._threads(plan, w_hh, units) == -(-units // block)
