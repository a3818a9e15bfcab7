"""The kernels against the reference: values, derivatives of both orders, and which one runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import noisin
from noisin import noise
from noisin.errors import InvalidValue
from noisin.recurrent import kernels
from noisin.recurrent.cell import KERNEL_CELLS as CELLS
from noisin.recurrent.functional import Weights
from noisin.recurrent.kernels.plan import Plan
from tests.compiler import needs_compiler
from tests.pairwise import table

KERNELS = ("eager", "c")
SIZES = {"full": (4, 4, 4), "ragged": (5, 3, 3, 1), "one step": (3,), "one row": (1, 1)}
F, P = 3, 2


def cases() -> Iterator[Any]:
    axes = (KERNELS, (*CELLS, "lstm-proj"), ("multiplicative", "additive"), (*SIZES,))
    for kernel, cell, mode, sizes, reverse in table(*axes, (False, True)):
        name = "-".join([kernel, cell, mode[:4], sizes, *(["reverse"] if reverse else [])])
        plan = Plan(CELLS[cell.removesuffix("-proj")], mode, SIZES[sizes], reverse)
        marks = [needs_compiler] if kernel == "c" else []
        yield pytest.param(kernel, plan, cell == "lstm-proj", id=name, marks=marks)


def tensors_of(
    plan: Plan, project: bool = False, H: int = 5, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, tuple[Tensor, ...], Weights]:
    cell, N, S = plan.cell, plan.N, sum(plan.sizes)
    out, rows = P if project else H, cell.recurrent * H

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=dtype).mul_(0.7).requires_grad_()

    state = (draw(N, out), draw(N, H)) if cell.carry else (draw(N, out),)
    w = Weights(draw(rows, F), draw(rows, out), draw(rows), draw(rows))
    w = w._replace(w_hr=draw(P, H) if project else None)
    return draw(S, F), draw(S, out).detach(), state, w


def run(kernel: str, plan: Plan, x: Tensor, eps: Tensor, *rest: Tensor | None) -> Any:
    n = 2 if plan.cell.carry else 1
    state, w = rest[:n], Weights(*rest[n:])
    with kernels.using(kernel):
        assert kernels.kernel_for(x, eps, state, w) == kernel
        z, final = kernels.run(plan, x, eps, state, w)
    return (z, *final)


def weighted(outputs: tuple[Tensor, ...]) -> Tensor:
    """A nonlinear loss that every entry of every output matters to."""
    terms = [(torch.arange(1.0, o.numel() + 1).to(o).view_as(o) * o.sin()).sum() for o in outputs]
    return torch.stack(terms).sum()


@pytest.mark.parametrize(("kernel", "plan", "project"), list(cases()))
def test_values_and_gradients_are_those_of_the_reference(
    kernel: str, plan: Plan, project: bool
) -> None:
    x, eps, state, w = tensors_of(plan, project)
    inputs = [t for t in (x, *state, *w) if t is not None]
    expected = run("reference", plan, x, eps, *state, *w)
    found = run(kernel, plan, x, eps, *state, *w)
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b, rtol=1e-12, atol=1e-13)
    d_found = torch.autograd.grad(weighted(found), inputs)
    d_expected = torch.autograd.grad(weighted(expected), inputs)
    for a, b in zip(d_found, d_expected, strict=True):
        assert_close(a, b, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(
    ("kernel", "H", "N"),
    [
        pytest.param(*row, marks=[needs_compiler] if row[0] == "c" else [])
        for row in table(KERNELS, [1, 7, 8, 16, 33, 130], [1, 5, 95, 97])
    ],
)
def test_sizes_around_those_of_vectors_and_tiles(kernel: str, H: int, N: int) -> None:
    """In float32, over many steps, with one thread and with two."""
    for cell in ("lstm", "gru-read"):
        plan = Plan(CELLS[cell], "multiplicative", (N,) * 6 + (max(1, N // 2),) * 3)
        x, eps, state, w = tensors_of(plan, H=H, dtype=torch.float32)
        w = Weights(*(None if v is None else (v / (1 + H**0.5)).detach() for v in w))
        outputs = []
        for name, threads in (("reference", 1), (kernel, 1), (kernel, 2)):
            torch.set_num_threads(threads)
            try:
                found = run(name, plan, x, eps, *state, *w)
                outputs.append([*found, *torch.autograd.grad(weighted(found), [x, *state])])
            finally:
                torch.set_num_threads(1)
        for expected, *found in zip(*outputs, strict=True):
            for a in found:
                atol = 1e-5 * float(expected.detach().abs().max())
                assert_close(a, expected, rtol=1e-4, atol=atol)


@pytest.mark.parametrize(("kernel", "plan", "project"), list(cases()))
def test_gradients_only_where_they_are_asked_for(kernel: str, plan: Plan, project: bool) -> None:
    x, eps, state, w = tensors_of(plan, project)
    every = [x, *state, *w]
    expected = torch.autograd.grad(
        weighted(run("reference", plan, x, eps, *state, *w)), [t for t in every if t is not None]
    )
    gradients = iter(expected)
    for k, tensor in enumerate(every):
        if tensor is None:
            continue
        given = [t if t is None or j == k else t.detach() for j, t in enumerate(every)]
        outputs = run(kernel, plan, given[0], eps, *given[1:])
        (found,) = torch.autograd.grad(weighted(outputs), [tensor])
        assert_close(found, next(gradients), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("kernel", [pytest.param("c", marks=needs_compiler), "eager"])
@pytest.mark.parametrize("cell", CELLS)
def test_gradcheck_of_both_orders(kernel: str, cell: str) -> None:
    plan = Plan(CELLS[cell], "multiplicative", (2, 2, 1))
    x, eps, state, w = tensors_of(plan, H=2)
    inputs = (x, *state, *w[:4])

    def function(x: Tensor, *rest: Tensor) -> Any:
        return run(kernel, plan, x, eps, *rest, None)

    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("kernel", [pytest.param("c", marks=needs_compiler), "eager"])
@pytest.mark.parametrize("linear", [True, False])
def test_second_derivatives_by_grad_and_by_backward(kernel: str, linear: bool) -> None:
    """Where the buffers have no graph, nothing may be silently wrong."""
    plan = Plan(CELLS["lstm"], "multiplicative", (3, 3, 2))
    x, eps, state, w = tensors_of(plan)
    found: dict[str, Any] = {}
    for name in ("reference", kernel):
        z = run(name, plan, x, eps, *state, *w)[0]
        loss = z.sum() if linear else z.pow(3).sum()
        (d_x,) = torch.autograd.grad(loss, [x], create_graph=True)
        (by_grad,) = torch.autograd.grad(d_x.square().sum(), [w.w_hh], retain_graph=True)
        w.w_hh.grad = None
        d_x.square().sum().backward()
        assert w.w_hh.grad is not None
        found[name] = (by_grad, w.w_hh.grad.clone())
    for a, b in zip(found[kernel], found["reference"], strict=True):
        assert_close(a, b)


def test_an_input_that_depends_on_another_is_not_differentiated_twice() -> None:
    plan = Plan(CELLS["elman-tanh"], "additive", (2, 2))
    x, eps, _, w = tensors_of(plan, H=F)
    results = []
    for kernel in ("reference", "eager"):
        z = run(kernel, plan, x, eps, x[:2] * 2, *w)[0]
        (d_x,) = torch.autograd.grad(z.sin().sum(), [x], create_graph=True)
        results.append(torch.autograd.grad(d_x.sin().sum(), [x])[0])
    assert_close(*results)


@pytest.mark.parametrize("kernel", [pytest.param("c", marks=needs_compiler), "eager"])
def test_backward_twice_over_one_graph(kernel: str) -> None:
    """The saved buffers are not overwritten."""
    plan = Plan(CELLS["gru-read"], "multiplicative", (2, 2))
    x, eps, state, w = tensors_of(plan)
    loss = weighted(run(kernel, plan, x, eps, *state, *w))
    first = torch.autograd.grad(loss, [x], retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(loss, [x])[0])


@pytest.mark.parametrize("kernel", [pytest.param("c", marks=needs_compiler), "eager"])
@pytest.mark.parametrize("cell", CELLS)
def test_no_two_gradients_share_memory(kernel: str, cell: str) -> None:
    """Clipping and accumulation change each .grad in place, and would change a shared one twice."""
    plan = Plan(CELLS[cell], "multiplicative", (4, 4))
    x, eps, state, w = tensors_of(plan)
    leaves = [t for t in (x, *state, *w) if t is not None]
    weighted(run(kernel, plan, x, eps, *state, *w)).backward()
    storages = [t.grad.untyped_storage().data_ptr() for t in leaves if t.grad is not None]
    assert len(set(storages)) == len(storages) == len(leaves)


@pytest.mark.parametrize("kernel", [pytest.param("c", marks=needs_compiler), "eager"])
@pytest.mark.parametrize(("cell", "rows"), [*((cell, 4) for cell in CELLS), ("lstm", 1100)])
def test_gradients_are_contiguous(kernel: str, cell: str, rows: int) -> None:
    """As those of torch's modules, also of many rows: torch.nn.utils reads them by view."""
    plan = Plan(CELLS[cell], "multiplicative", (rows, rows))
    x, eps, state, w = tensors_of(plan)
    leaves = [t for t in (x, *state, *w) if t is not None]
    outputs = run(kernel, plan, x, eps, *state, *w)
    gradients = torch.autograd.grad(weighted(outputs), leaves)
    assert all(gradient.is_contiguous() for gradient in gradients)
    found = torch.nn.utils.parameters_to_vector(gradients)
    outputs = run("reference", plan, x, eps, *state, *w)
    expected = torch.autograd.grad(weighted(outputs), leaves)
    assert_close(found, torch.cat([gradient.flatten() for gradient in expected]))


@pytest.mark.parametrize("kernel", [pytest.param("c", marks=needs_compiler), "eager"])
@pytest.mark.parametrize("cell", CELLS)
def test_batches_of_gradients(kernel: str, cell: str) -> None:
    """``is_grads_batched``, a vmap over ``torch.autograd.grad``, and a vectorized Jacobian."""
    plan = Plan(CELLS[cell], "multiplicative", (3, 3, 2))
    x, eps, state, w = tensors_of(plan)
    leaves = [t for t in (x, *state, *w) if t is not None]
    outputs = run(kernel, plan, x, eps, *state, *w)
    batches = [torch.randn(4, *t.shape, dtype=t.dtype) for t in outputs]

    def gradients(*d_outputs: Tensor, **options: Any) -> tuple[Tensor, ...]:
        return torch.autograd.grad(outputs, leaves, d_outputs, retain_graph=True, **options)

    alone = [gradients(*d_outputs) for d_outputs in zip(*batches, strict=True)]
    expected = [torch.stack(parts) for parts in zip(*alone, strict=True)]
    assert_close(list(gradients(*batches, is_grads_batched=True)), expected)
    assert_close(list(torch.vmap(gradients)(*batches)), expected)

    def of_x(x: Tensor) -> Tensor:
        z: Tensor = run(kernel, plan, x, eps, *state, *w)[0]
        return z

    jacobian = torch.autograd.functional.jacobian
    assert_close(jacobian(of_x, x, vectorize=True), jacobian(of_x, x))


@pytest.mark.parametrize("kernel", [pytest.param("c", marks=needs_compiler), "eager"])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1e30])
def test_what_is_not_finite_is_not_hidden(kernel: str, cell: str, bad: float) -> None:
    plan = Plan(CELLS[cell], "multiplicative", (2, 2))
    x, eps, state, w = tensors_of(plan, H=9)
    with torch.no_grad():
        x[0, 0] = bad
    with torch.no_grad():
        found, expected = (run(k, plan, x, eps, *state, *w)[0] for k in (kernel, "reference"))
    assert_close(found, expected, equal_nan=True)


class TestChoice:
    def test_by_environment_and_context(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("NOISIN_KERNEL", raising=False)
        assert kernels.chosen() == "auto"
        monkeypatch.setenv("NOISIN_KERNEL", "eager")
        assert kernels.chosen() == "eager"
        with kernels.using("reference"):
            assert kernels.chosen() == "reference"
        assert kernels.chosen() == "eager"
        monkeypatch.setenv("NOISIN_KERNEL", "fortran")
        with pytest.raises(InvalidValue, match="NOISIN_KERNEL.*'fortran'"):
            kernels.chosen()

    def kernel(self, **changes: Any) -> str:
        plan = Plan(CELLS["lstm"], "multiplicative", (2, 2))
        x, eps, state, w = tensors_of(plan, dtype=changes.pop("dtype", torch.float32))
        eps = changes.get("eps", eps)
        return kernels.kernel_for(changes.get("x", x), eps, state, w)

    @needs_compiler
    def test_c_by_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("NOISIN_KERNEL", raising=False)
        assert self.kernel() == self.kernel(dtype=torch.float64) == "c"
        assert self.kernel(dtype=torch.float16) == "eager"

    def test_eager_where_operations_are_counted(self) -> None:
        with FlopCounterMode(display=False):
            assert self.kernel() == "eager"

    def test_the_reference_under_transforms(self) -> None:
        assert self.kernel(eps=torch.zeros(4, 5, requires_grad=True)) == "reference"
        assert self.kernel(x=torch.zeros(4, F, dtype=torch.float64)) == "reference"  # mixed
        found: list[str] = []

        given = tensors_of(Plan(CELLS["lstm"], "multiplicative", (2, 2)))

        def note(x: Tensor) -> Tensor:
            found.append(kernels.kernel_for(*given))
            return x

        torch.func.vmap(note)(torch.zeros(2))
        with torch.autograd.forward_ad.dual_level():
            found.append(self.kernel())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found.append(self.kernel())
        assert found == ["reference"] * 3


@pytest.mark.parametrize("kernel", [pytest.param("c", marks=needs_compiler), "eager"])
def test_no_grad_keeps_no_training_buffers(kernel: str) -> None:
    """With the noise on and gradients off, saving for backward must not happen at all."""
    plan = Plan(CELLS["lstm"], "multiplicative", (3, 3))
    x, eps, state, w = tensors_of(plan)
    saved: list[Tensor] = []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t)
    with hooks:
        run(kernel, plan, x, eps, *state, *w)
        assert saved
        saved.clear()
        with torch.no_grad():
            run(kernel, plan, x, eps, *state, *w)
    assert not saved


@pytest.mark.parametrize("kernel", [pytest.param("c", marks=needs_compiler), "eager"])
def test_what_is_saved_is_what_backward_needs(kernel: str) -> None:
    """Gates, z, c and the inputs: nothing per step beside them."""
    T, N, H = 6, 4, 8
    plan = Plan(CELLS["lstm"], "multiplicative", (N,) * T)
    x, eps, state, w = tensors_of(plan, H=H)
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: sizes.append(t.numel()) or t, lambda t: t
    ):
        run(kernel, plan, x, eps, *state, *w)
    inputs = sum(t.numel() for t in (x, eps, *state, *w) if t is not None)
    assert sum(sizes) <= inputs + T * N * (4 * H + H + H)


@pytest.mark.parametrize("kernel", [pytest.param("c", marks=needs_compiler), "eager"])
def test_a_module_under_gradient_checkpointing(kernel: str) -> None:
    rnn = noisin.LSTM(F, 6, 2, noise=noise.Gaussian(0.5), dtype=torch.float64)
    x = torch.randn(4, 3, F, dtype=torch.float64, requires_grad=True)
    gradients = []
    for call in (
        lambda x: rnn(x)[0],
        lambda x: checkpoint(lambda v: rnn(v)[0], x, use_reentrant=False),
    ):
        torch.manual_seed(3)
        with kernels.using(kernel):
            gradients.append(torch.autograd.grad(call(x).sin().sum(), [x, *rnn.parameters()]))
    for a, b in zip(*gradients, strict=True):
        assert_close(a, b)


def test_noise_off_is_torchs_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a kernel of ours ran")

    monkeypatch.setattr(kernels, "run", refuse)
    rnn = noisin.LSTM(F, 4, noise=noise.Gaussian(0.5))
    x = torch.randn(3, 2, F)
    with noisin.noise_off(rnn):
        rnn(x)
    with pytest.raises(AssertionError, match="ours ran"):
        rnn(x)
