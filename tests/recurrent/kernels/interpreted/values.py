"""The Triton kernels by Triton's interpreter, on the CPU: values and gradients of the reference.

``TRITON_INTERPRET=1 python -m pytest tests/recurrent/kernels/interpreted/values.py``, as
``tests/recurrent/kernels/test_triton.py`` runs it. A process that has imported Triton without that
variable cannot interpret kernels any more, so these tests have one of their own.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence
from torch.testing import assert_close

from benchmarks import gpu as benchmark
from benchmarks.rivals import Size
from benchmarks.timing import Comparison, Rivals, seconds
from noisin.recurrent import kernels
from noisin.recurrent.cell import KERNEL_CELLS as CELLS
from noisin.recurrent.kernels import eager, gpu, graphs
from noisin.recurrent.kernels.plan import Plan
from tests.cases import KINDS, MODES
from tests.pairwise import PRODUCTS, product, table
from tests.recurrent.kernels import test_kernels as contracts
from tests.recurrent.kernels.test_kernels import run, tensors_of, weighted

assert os.environ.get("TRITON_INTERPRET") == "1", "needs TRITON_INTERPRET=1"

F = 3
# Lengths of the sequences; hidden units: one, no power of two, and more than a tile has.
LENGTHS = {"one": (3,), "full": (2, 2, 2), "ragged": (3, 2, 1, 1)}
UNITS = (1, 33, 130)
TOLERANCE = {torch.float64: (1e-10, 1e-11), torch.float32: (1e-3, 1e-4)}
ALL_CELLS = (*CELLS, "lstm-proj")
HALF = product(ALL_CELLS, (torch.float16, torch.bfloat16))
HALF = HALF if PRODUCTS else HALF[::3]


def possible(kind: str, mode: str, lengths: str, H: int, *rest: Any) -> bool:
    masked = rest[-1]
    return (kind != "lstm-proj" or H > 2) and not (masked and kind == "gru-state")


AXES = (KINDS, MODES, LENGTHS, UNITS, TOLERANCE, (False, True), (False, True), (False, True))
TABLE = table(*map(tuple, AXES), where=possible)
# Time runs backward, sequences begin in mid-course, and each reads its first state through a mask.
TABLE += [
    (kind, "multiplicative", "ragged", 33, torch.float64, True, True, True)
    for kind in ("relu", "lstm-proj", "gru-read")
]


def outputs_of(rnn: Any, *given: Any, **options: Tensor | None) -> list[Tensor]:
    z, state = rnn(*given, **options)
    return [getattr(z, "data", z), *(state if isinstance(state, tuple) else (state,))]


def assert_alike(found: Iterable[Tensor], wanted: Iterable[Tensor], dtype: torch.dtype) -> None:
    """Up to rounding, which grows with the values."""
    rtol, atol = TOLERANCE[dtype]
    for a, b in zip(found, wanted, strict=True):
        assert_close(a, b, rtol=rtol, atol=atol * float(1 + b.detach().abs().max()))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: "-".join(map(str, row)))
def test_a_module_equals_the_reference(row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs and all gradients: packed, in both directions, with masks, with and without bias."""
    kind, mode, lengths, H, dtype, bidirectional, bias, masked = row
    cls, _, extra = KINDS[kind]
    settings = {"bidirectional": bidirectional, "bias": bias, "mode": mode, "dtype": dtype}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*carry.*")
        rnn = cls(F, H, **settings, **extra)
    xs = [torch.randn(T, F, dtype=dtype).requires_grad_() for T in LENGTHS[lengths]]
    D, T, N, out = 1 + bidirectional, len(xs[0]), len(xs), extra.get("proj_size", H)
    eps, mask = (torch.randn(D, T, N, out, dtype=dtype) for _ in range(2))
    hx = torch.randn(D, N, out, dtype=dtype).requires_grad_()
    c = torch.randn(D, N, H, dtype=dtype).requires_grad_()
    state = (hx, c) if kind.startswith("lstm") else (hx,)
    given = {"eps": eps, "read_mask": mask if masked else None}
    assert gpu.runs(torch.zeros(1)), "which launches a kernel, once"
    launched: list[str] = []
    launch = gpu._launch
    monkeypatch.setattr(gpu, "_launch", lambda *a, **k: launched.append(a[0]) or launch(*a, **k))
    results = []
    for kernel in ("reference", "triton"):
        x = pack_sequence(xs) if lengths == "ragged" else torch.stack(xs, dim=1)
        with kernels.using(kernel):
            outputs = outputs_of(rnn, x, state if len(state) > 1 else hx, **given)
        leaves = [*xs, *state, *rnn.parameters()]
        results.append([*outputs, *torch.autograd.grad(weighted(tuple(outputs)), leaves)])
    per_step = ("forward", "backward") + ("inject", "receive") * (kind == "lstm-proj")
    assert sorted(launched) == sorted(per_step * D * T), "one launch per step"
    assert_alike(results[1], results[0], dtype)


@pytest.mark.parametrize(
    "cell", ALL_CELLS if PRODUCTS else ("elman-tanh", "lstm-proj", "gru-state")
)
def test_a_recording_is_replayed_with_other_tensors(
    cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a CUDA graph would be: the first call runs, the second is recorded, the third replays."""
    monkeypatch.setattr(graphs, "run", graphs.GraphCache(record=lambda function: function))
    plan = Plan(CELLS[cell.removesuffix("-proj")], "multiplicative", (3, 2), reverse=True)
    kept: list[tuple[list[Tensor], list[Tensor]]] = []
    for _ in range(3):
        x, eps, state, w = tensors_of(plan, cell == "lstm-proj")
        results = []
        for kernel in ("reference", "triton"):
            outputs = run(kernel, plan, x, eps, *state, *w)
            leaves = [t for t in (x, *state, *w) if t is not None]
            results.append([*outputs, *torch.autograd.grad(weighted(outputs), leaves)])
        kept.append((results[1], results[0]))
    for found, wanted in kept:  # after all of them: a replay changes no earlier result
        assert_alike(found, wanted, torch.float64)


@pytest.mark.parametrize(("cell", "dtype"), HALF)
def test_half_precision(cell: str, dtype: torch.dtype) -> None:
    """As close to the result in float64 as the steps that round it allow."""
    plan = Plan(CELLS[cell.removesuffix("-proj")], "multiplicative", (3, 3, 2))
    x, eps, state, w = tensors_of(plan, cell == "lstm-proj")
    low = [None if t is None else t.detach().to(dtype).requires_grad_() for t in (x, *state, *w)]
    high = [None if t is None else t.detach().double().requires_grad_() for t in low]
    results = []
    for kernel, given in (("reference", high), ("triton", low)):
        outputs = run(kernel, plan, given[0], eps.to(dtype).to(given[0].dtype), *given[1:])
        loss = sum(o.double().sin().sum() for o in outputs)
        gradients = torch.autograd.grad(loss, [t for t in given if t is not None])
        results.append([t.double() for t in (*outputs, *gradients)])
    for a, b in zip(*results, strict=True):
        error = (a - b).abs().max() / (1 + b.abs().max())
        assert error < 16 * torch.finfo(dtype).eps


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1e30])
def test_what_is_not_finite_is_not_hidden(cell: str, bad: float) -> None:
    contracts.test_what_is_not_finite_is_not_hidden("triton", cell, bad)


@pytest.mark.parametrize("cell", ["lstm", "gru-state"])
def test_no_two_gradients_share_memory(cell: str) -> None:
    contracts.test_no_two_gradients_share_memory("triton", cell)


@pytest.mark.parametrize(
    "contract",
    [
        contracts.test_backward_twice_over_one_graph,
        contracts.test_no_grad_keeps_no_training_buffers,
        contracts.test_what_is_saved_is_what_backward_needs,
    ],
    ids=lambda contract: contract.__name__,
)
def test_what_every_kernel_keeps_to(contract: Any) -> None:
    contract("triton")


@pytest.mark.parametrize("reverse", [False, True])
def test_the_recurrence_has_the_interface_of_eager(reverse: bool) -> None:
    """With a gradient of the final state too, which a layer gives as one of its last z."""
    plan, H = Plan(CELLS["lstm"], "multiplicative", (3, 2, 1), reverse), 5

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64)

    gates, bias, w_hh, eps, mask = (
        draw(6, 4 * H),
        draw(4 * H),
        draw(4 * H, H),
        draw(6, H),
        draw(6, H),
    )
    state, d_z, d_state = [draw(3, H), draw(3, H)], draw(6, H), [draw(3, H), draw(3, H)]
    results = []
    for recurrence in (eager, gpu):
        own, final, d_own = gates.clone(), [s.clone() for s in state], [d.clone() for d in d_state]
        z, carries = recurrence.forward(plan, own, bias, w_hh, None, eps, mask, final, True)
        d_gates, _ = recurrence.backward(
            plan, own, w_hh, None, eps, mask, state, z, carries, d_z, d_own
        )
        results.append([own, *final, z, carries, d_gates, *d_own])
    assert_close(*results)


def test_the_benchmark_tells_right_from_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of ``python -m benchmarks.gpu``, at toy size."""
    monkeypatch.setattr(benchmark, "TIMES", 1)
    monkeypatch.setattr(benchmark, "STEPS", {"ragged": (2, 1)})
    settings = ("cpu", ["gru-state"], [torch.float64], [3])
    assert list(benchmark.wrong_values(*settings)) == []
    forward = gpu._forward
    for factor in (1 + 1e-6, float("nan")):
        monkeypatch.setattr(
            gpu,
            "_forward",
            lambda *a, f=factor: tuple(t if t is None else f * t for t in forward(*a)),
        )
        assert len(list(benchmark.wrong_values(*settings))) == 4


def test_the_benchmark_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rival runs."""

    def once(case: str, rivals: Rivals, budget: float) -> Comparison:
        return Comparison(case, {name: [seconds(rival)] for name, rival in rivals.items()})

    monkeypatch.setattr(benchmark, "compare", once)
    monkeypatch.setattr(benchmark, "TIMES", 1)
    (found,) = benchmark.compare_gpu([Size("LSTM", 3, 1, T=1)], "cpu", precisions=["tf32"])
    assert found.rounds.keys() == {"torch", "triton", "launched", "eager", "loop"}
    assert benchmark.line(found).startswith("LSTM 3 × 1, T = 1, tf32: torch ")


def test_second_derivatives() -> None:
    contracts.test_second_derivatives_by_grad_and_by_backward("triton", linear=False)


def test_where_triton_is_not_asked_for_the_cpu_does_not_interpret() -> None:
    given = tensors_of(Plan(CELLS["lstm"], "multiplicative", (2, 2)))
    for kernel in ("auto", "eager"):
        with kernels.using(kernel):
            assert kernels.kernel_for(*given) != "triton"
    with kernels.using("triton"):
        assert kernels.kernel_for(*given) == "triton"
