"""``python -m benchmarks.gpu``: the kernels on a GPU, their values first and then their speed.

Every cell, noise, direction and precision is compared with the reference on the device, three times
each: launched kernel by kernel, recorded as a CUDA graph, and replayed. Then a layer is timed
against torch's module without noise, which is cuDNN's or MIOpen's. The exit code is 0 where all
values are right, 1 where one is wrong or the kernels do not run, and 2 where there is no GPU.

Both sides multiply in the same precision: torch's default is TF32 for cuDNN and not for products.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from benchmarks.layers import SIZES
from benchmarks.rivals import Problem, Size
from benchmarks.timing import Comparison, Rival, compare
from noisin.recurrent import kernels
from noisin.recurrent.cell import KERNEL_CELLS
from noisin.recurrent.functional import Weights
from noisin.recurrent.kernels import gpu
from noisin.recurrent.kernels.plan import Plan

# Relative to the largest entry, with what the reference computes in float64.
TOLERANCE = {
    torch.float64: 1e-10,
    torch.float32: 1e-4,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}
STEPS = {"full": (5,) * 7, "one": (1,) * 3, "ragged": (37, 20, 20, 3, 1)}
UNITS = (1, 33, 256)
F, P = 3, 2  # features of the input; of the output, with a projection
CELLS = (*KERNEL_CELLS, "lstm-projected")
TIMES = 3  # launched, recorded, replayed


def main() -> int:
    """Check and time the first GPU; the exit code."""
    if not torch.cuda.is_available():
        print("There is no GPU that torch can use: torch.cuda.is_available() is False.")
        return 2
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {toolkit()}")
    if not gpu.runs(torch.zeros(1, device="cuda")):
        print("The Triton kernels do not run here; the logger noisin.kernels says why at DEBUG.")
        return 1
    with precision("ieee"):
        wrong = list(wrong_values("cuda"))
    print("\n".join(wrong) or "all values and gradients are those of the reference", flush=True)
    for comparison in compare_gpu():
        print(line(comparison), flush=True)
    return 1 if wrong else 0


def toolkit() -> str:
    """CUDA or ROCm, with Triton, and their versions."""
    import triton

    found = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}"
    return f"{found}, triton {triton.__version__}"


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Products in float32 and cuDNN's layers: ``ieee``, or ``tf32`` for both."""
    settings: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn.rnn)
    before = [setting.fp32_precision for setting in settings]
    try:
        for setting in settings:
            setting.fp32_precision = name
        yield
    finally:
        for setting, value in zip(settings, before, strict=True):
            setting.fp32_precision = value


# Values


def wrong_values(
    device: str,
    cells: Iterable[str] = CELLS,
    dtypes: Iterable[torch.dtype] = tuple(TOLERANCE),
    units: Iterable[int] = UNITS,
) -> Iterator[str]:
    """A line for each case whose values or gradients are not those of the reference."""
    shapes = itertools.cycle(itertools.product(units, STEPS))  # each in turn
    for name, dtype, mode, reverse, masked in itertools.product(
        cells, dtypes, ("multiplicative", "additive"), (False, True), (False, True)
    ):
        cell = KERNEL_CELLS[name.removesuffix("-projected")]
        if masked and not cell.masks:
            continue
        H, steps = next(shapes)
        plan = Plan(cell, mode, STEPS[steps], reverse)
        projected = name.endswith("-projected")
        errors = [deviation(plan, H, projected, masked, dtype, device) for _ in range(TIMES)]
        if not all(error <= TOLERANCE[dtype] for error in errors):
            words = [name, mode, steps, f"H = {H}", str(dtype)]
            words += ["reverse"] * reverse + ["masked"] * masked
            yield f"WRONG by {', '.join(f'{e:.1e}' for e in errors)}: {', '.join(words)}"


def deviation(
    plan: Plan, H: int, projected: bool, masked: bool, dtype: torch.dtype, device: str
) -> float:
    """The largest difference from the reference in float64, relative to the largest entry."""
    cell, N, S, out = plan.cell, plan.N, sum(plan.sizes), P if projected else H

    def draw(*shape: int) -> Tensor:
        scale = max(1, shape[-1]) ** -0.5
        return (scale * torch.randn(shape, device=device)).to(dtype)

    G = cell.recurrent * H
    state = [draw(N, out), draw(N, H)][: 1 + cell.carry]
    weights = [draw(G, F), draw(G, out), draw(G), draw(G), draw(P, H) if projected else None]
    given = [draw(S, F), *state, *weights]
    eps, mask = draw(S, out), draw(S, out) if masked else None
    results = []
    for kernel, kind in (("reference", torch.float64), ("triton", dtype)):
        leaves = [None if t is None else t.to(kind).requires_grad_() for t in given]
        state, w = leaves[1 : 1 + len(state)], Weights(*leaves[1 + len(state) :])
        factors = [None if t is None else t.to(kind) for t in (eps, mask)]
        with kernels.using(kernel):
            z, final = kernels.run(plan, leaves[0], factors[0], tuple(state), w, factors[1])
        outputs = [t.double() for t in (z, *final)]
        loss = torch.stack([t.sin().sum() for t in outputs]).sum()
        gradients = torch.autograd.grad(loss, [t for t in leaves if t is not None])
        results.append([*outputs, *(g.double() for g in gradients)])
    differences = [(a - b).abs().max() / (1 + b.abs().max()) for a, b in zip(*results, strict=True)]
    return float(torch.stack(differences).detach().max())  # NaN where one of them is


# Speed


def compare_gpu(
    sizes: Iterable[Size] = SIZES,
    device: str = "cuda",
    budget: float = 3.0,
    precisions: Iterable[str] = ("ieee", "tf32"),
) -> Iterator[Comparison]:
    """A noisy layer by each kernel over torch's without noise, drawing the noise included."""
    for name, size in itertools.product(precisions, sizes):
        problem = Problem(size, device)
        rivals = {
            "torch": problem.torch(),
            "triton": problem.noisy("triton"),
            "launched": without_graphs(problem.noisy("triton")),
            "eager": problem.noisy("eager"),
            "loop": problem.loop(),
        }
        with precision(name):
            waited = {rival: synchronized(run, device) for rival, run in rivals.items()}
            for _ in range(TIMES):  # compile, record, replay
                waited["triton"]()
            yield compare(f"{size}, {name}", waited, budget)


def synchronized(rival: Rival, device: str) -> Rival:
    """The same until the device has finished, which a launch does not wait for."""

    def run() -> None:
        rival()
        if device != "cpu":
            torch.cuda.synchronize(device)

    return run


def without_graphs(rival: Callable[[], Any]) -> Rival:
    """The same with every kernel launched by itself."""

    def run() -> None:
        before = os.environ.get("NOISIN_CUDA_GRAPHS", "auto")
        os.environ["NOISIN_CUDA_GRAPHS"] = "off"
        try:
            rival()
        finally:
            os.environ["NOISIN_CUDA_GRAPHS"] = before

    return run


def line(comparison: Comparison) -> str:
    """Milliseconds of torch's, and each rival's ratio to it with its quartiles."""
    milliseconds = 1e3 * comparison.spread("torch").median
    ratios = [
        f"{rival} {median:.2f} [{low:.2f}, {high:.2f}]"
        for rival in comparison.rounds
        if rival != "torch"
        for low, median, high in [comparison.ratio(rival, "torch")]
    ]
    return f"{comparison.case}: torch {milliseconds:.2f} ms; {'  '.join(ratios)}"


if __name__ == "__main__":
    sys.exit(main())
