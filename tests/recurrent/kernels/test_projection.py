"""An LSTM's projection in the kernels: values and gradients at the edges of tiles, and refusals."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.errors import InvalidValue
from noisin.recurrent import kernels
from noisin.recurrent.cell import KERNEL_CELLS as CELLS
from noisin.recurrent.functional import Weights
from noisin.recurrent.kernels import compiled, layer, native
from noisin.recurrent.kernels.plan import Plan
from tests.compiler import needs_compiler
from tests.pairwise import table

F = 3
SIZES = {"full": (4, 4, 4), "ragged": (5, 3, 3, 1), "one step": (3,), "chunks": (97, 97, 60)}
# Of P and of H, as multiples of a block and what is added: P = 1, around a block, and H above it.
PROJECTIONS = {"one": (0, 1), "block - 1": (1, -1), "block": (1, 0), "block + 1": (1, 1)}
HIDDEN = {"next": (0, 1), "two blocks": (2, 1)}


def tensors_of(plan: Plan, H: int, P: int, dtype: torch.dtype) -> list[Tensor]:
    """x, the state and the weights."""

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=dtype).div_(shape[-1] ** 0.5).requires_grad_()

    weights = [draw(4 * H, F), draw(4 * H, P), draw(4 * H), draw(4 * H), draw(P, H)]
    return [draw(sum(plan.sizes), F), draw(plan.N, P), draw(plan.N, H), *weights]


def run(kernel: str, plan: Plan, inputs: list[Tensor], eps: Tensor, mask: Any = None) -> Any:
    x, z0, c0, *weights = inputs
    state, w = (z0, c0), Weights(*weights)
    with kernels.using(kernel):
        assert kernels.kernel_for(x, eps, state, w, mask) == kernel
        z, final = kernels.run(plan, x, eps, state, w, mask)
    return (z, *final)


@pytest.mark.parametrize(
    ("kernel", "P", "H", "sizes", "reverse", "masked", "mode", "dtype", "threads"),
    [
        pytest.param(*row, marks=needs_compiler if row[0] == "c" else ())
        for row in table(
            ("c", "eager"), PROJECTIONS, HIDDEN, SIZES, (False, True), (False, True),
            ("multiplicative", "additive"), (torch.float32, torch.float64), (1, 2),
        )
    ],
)  # fmt: skip
def test_values_and_gradients_are_those_of_the_reference(
    kernel: str, P: str, H: str, sizes: str, reverse: bool, masked: bool, mode: Any,
    dtype: torch.dtype, threads: int,
) -> None:  # fmt: skip
    block = compiled.tiling(dtype).block if kernel == "c" else 8
    blocks, more = PROJECTIONS[P]
    outputs = blocks * block + more
    blocks, more = HIDDEN[H]
    plan = Plan(CELLS["lstm"], mode, SIZES[sizes], reverse)
    inputs = tensors_of(plan, outputs + blocks * block + more, outputs, dtype)
    eps = torch.randn(sum(plan.sizes), outputs, dtype=dtype)
    mask = torch.rand_like(eps) if masked else None
    found = {}
    torch.set_num_threads(threads)
    try:
        for name in ("reference", kernel):
            values = run(name, plan, inputs, eps, mask)
            loss = sum((v.sin() * v).sum() for v in values)
            found[name] = (*values, *torch.autograd.grad(loss, inputs))
    finally:
        torch.set_num_threads(1)
    tolerance = {torch.float32: 2e-4, torch.float64: 1e-11}[dtype]
    for a, b in zip(found[kernel], found["reference"], strict=True):
        assert_close(a, b, rtol=tolerance, atol=tolerance * float(b.detach().abs().max()))


@needs_compiler
def test_gradcheck_of_both_orders() -> None:
    plan = Plan(CELLS["lstm"], "multiplicative", (2, 2, 1))
    inputs, eps = tensors_of(plan, 3, 2, torch.float64), torch.randn(5, 2, dtype=torch.float64)

    def function(*inputs: Tensor) -> Any:
        return run("c", plan, list(inputs), eps)

    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs, fast_mode=True)


@needs_compiler
def test_a_module_with_a_projection_runs_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOISIN_KERNEL", raising=False)
    ran, run_layer = [], layer.run

    def noted(*given: Any, recurrence: ModuleType) -> Any:
        ran.append(recurrence)
        return run_layer(*given, recurrence=recurrence)

    monkeypatch.setattr(layer, "run", noted)
    rnn = noisin.LSTM(F, 6, proj_size=2, num_layers=2, noise=noise.Gaussian(0.5))
    rnn(torch.randn(4, 3, F))
    assert ran == [native, native]


@needs_compiler
def test_without_a_carry_kept_nothing_else_changes() -> None:
    plan = Plan(CELLS["lstm"], "multiplicative", (3, 2))
    inputs, eps = tensors_of(plan, 6, 4, torch.float64), torch.randn(5, 4, dtype=torch.float64)
    expected = run("c", plan, inputs, eps)
    with torch.no_grad():
        assert_close(run("c", plan, inputs, eps), tuple(v.detach() for v in expected))


WRONG = {
    "a projection from fewer units": ("w_hr", lambda t: t[:, 1:], "u must be .*got"),
    "a projection to fewer units": ("w_hr", lambda t: t[1:], "w_hr must be"),
    "a projection of another precision": ("w_hr", torch.Tensor.double, "w_hr must be .*float32"),
    "noise on h": ("eps", lambda t: torch.rand(5, 6), "eps must be"),
    "z of h": ("z", lambda t: torch.rand(5, 6), "z must be"),
    "carries of z": ("carries", lambda t: torch.rand(5, 4), "carries must be"),
    "a memory of z": ("carry", lambda t: torch.rand(3, 4), "carry must be"),
    "no gradient of the projection": ("d_projected", lambda t: None, "d_projected must be .*None"),
    "a gradient of h": ("d_projected", lambda t: torch.rand(5, 6), "d_projected must be"),
}


def given_to_backward(H: int = 6, P: int = 4) -> dict[str, Any]:
    rows, N = 5, 3
    shapes = {
        "gates": (rows, 4 * H), "u": (4 * H, P), "w_hr": (P, H), "z0": (N, P), "carry": (N, H),
        "eps": (rows, P), "mask": (rows, P), "z": (rows, P), "carries": (rows, H),
        "d_z": (rows, P), "d_state": (N, P), "d_carry": (N, H), "d_gates": (rows, 4 * H),
        "d_projected": (rows, P),
    }  # fmt: skip
    return {name: torch.rand(shape) for name, shape in shapes.items()}


@needs_compiler
@pytest.mark.parametrize("wrong", WRONG)
def test_the_last_look_before_pointers_are_passed(wrong: str) -> None:
    plan, given = Plan(CELLS["lstm"], "multiplicative", (3, 2)), given_to_backward()
    native._call("backward", plan, given["u"], **given)
    name, change, message = WRONG[wrong]
    with pytest.raises(InvalidValue, match=f"kernels: {message}"):
        native._call("backward", plan, given["u"], **given | {name: change(given[name])})


@needs_compiler
@pytest.mark.parametrize("cell", [name for name in CELLS if name != "lstm"])
def test_only_an_lstm_projects(cell: str) -> None:
    plan, given = Plan(CELLS[cell], "multiplicative", (3, 2)), given_to_backward()
    with pytest.raises(InvalidValue, match="w_hr projects the hidden state of an LSTM"):
        native._call("backward", plan, given["u"], **given)
