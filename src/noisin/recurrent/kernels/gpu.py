"""The recurrence of a layer on a GPU: a matrix product and one fused kernel per step.

The same as :mod:`~.kernels.eager`. The products are torch's, which are cuBLAS's or rocBLAS's; what
lies between them is in :mod:`~.kernels.triton_cells`, and the loop over the steps is replayed as a
CUDA graph where a shape repeats, see :mod:`~.kernels.graphs`.

Triton is imported when the first tensor on a GPU comes. Under ``TRITON_INTERPRET=1`` its kernels
run on the CPU, far too slowly for anything but tests.
"""

from __future__ import annotations

import importlib
import logging
import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor

from noisin.recurrent.functional import Factors
from noisin.recurrent.kernels import graphs, masks
from noisin.recurrent.kernels.plan import Plan

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_OLDEST = (8, 0)  # the compute capability that the kernels are compiled for in the tests, or more
# Elements of a tile, and units of it at most: a program of four warps has two elements per thread.
_TILE, _UNITS = 256, 128

_logger = logging.getLogger("noisin.kernels")


def runs(x: Tensor) -> bool:
    """Whether the kernels run on the device of x, in its dtype."""
    if x.dtype not in _DTYPES:
        return False
    if x.device.type == "cpu":
        return interpreted() and _works("cpu")
    # The first launch compiles and loads a kernel, which may not happen during a capture.
    return x.device.type == "cuda" and not graphs.capturing() and _works(str(x.device))


def interpreted() -> bool:
    """Whether Triton runs kernels on the CPU, for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def _works(device: str) -> bool:
    """Whether the smallest of the kernels compiles and computes on this device."""
    if device != "cpu" and torch.cuda.get_device_capability(device) < _OLDEST:
        _logger.debug("%s is older than what Triton compiles for: the eager kernel runs", device)
        return False
    try:
        with torch.inference_mode(False), torch.no_grad(), _on(torch.device(device)):
            z, eps, read = (torch.full((1, 1), v, device=device) for v in (2.0, 0.5, 0.0))
            _launch("inject", z, eps, None, z, read, 0, 1, 0, 0, rows=1, additive=False)
            return z.item() == read.item() == 3.0
    except Exception as error:  # Triton's, the driver's or the missing compiler's: of any kind
        _logger.debug("Triton does not run on %s: %s: the eager kernel runs", device, error)
        return False


def forward(
    plan: Plan,
    gates: Tensor,
    bias: Tensor | None,
    w_hh: Tensor,
    w_hr: Tensor | None,
    eps: Tensor,
    mask: Tensor | None,
    state: list[Tensor],
    keep: bool,
    factors: Factors = Factors(),  # noqa: B008 - immutable
) -> tuple[Tensor, Tensor | None]:
    """As :func:`noisin.recurrent.kernels.eager.forward`, without factors or masks per gate."""
    assert not factors.given  # see choice.recurrence_for
    mask = masks.of_all_steps(plan, mask)
    z0, carry = state if len(state) > 1 else (state[0], None)
    tensors = (gates, bias, w_hh, w_hr, eps, mask, z0, carry)
    with _on(gates.device):
        z, carries = graphs.run(_forward, (plan, keep), tensors, written=(0, 7))
    assert z is not None
    return z, carries


def backward(
    plan: Plan,
    gates: Tensor,
    w_hh: Tensor,
    w_hr: Tensor | None,
    eps: Tensor,
    mask: Tensor | None,
    state: list[Tensor],
    z: Tensor,
    carries: Tensor | None,
    d_z: Tensor,
    d_state: list[Tensor],
    _: bool = True,
    factors: Factors = Factors(),  # noqa: B008 - immutable
) -> tuple[Tensor, Tensor | None]:
    """As :func:`noisin.recurrent.kernels.eager.backward`, without factors or masks per gate."""
    assert not factors.given
    mask = masks.of_all_steps(plan, mask)
    d_before, d_carry = d_state if len(d_state) > 1 else (d_state[0], None)
    carried: tuple[Tensor | None, Tensor | None] = (None, None)
    if plan.cell.slots > 1:
        carried = (carries, state[1]) if plan.cell.carry else (z, state[0])
    scale = None if plan.mode == "additive" else eps
    tensors = (gates, w_hh, w_hr, scale, mask, *carried, d_z, d_before, d_carry)
    with _on(gates.device):
        d_gates, d_projected = graphs.run(_backward, (plan,), tensors, written=(8, 9))
    assert d_gates is not None
    return d_gates, d_projected


def _forward(
    plan: Plan,
    keep: bool,
    gates: Tensor,
    bias: Tensor | None,
    w_hh: Tensor,
    w_hr: Tensor | None,
    eps: Tensor,
    mask: Tensor | None,
    z0: Tensor,
    carry: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    cell, additive = plan.cell, plan.mode == "additive"
    H = w_hh.shape[0] // cell.recurrent
    z = torch.empty_like(eps)
    carries = None if carry is None or not keep else gates.new_empty(len(gates), H)
    h = z if w_hr is None else gates.new_empty(plan.N, H)
    read = z0.clone() if mask is None else z0 * _first(plan, mask)
    gates[:, cell.inputs * H :] = 0
    for i, t in enumerate(plan.order):
        rows, n = plan.rows(t), plan.sizes[t]
        step = (rows.start, n, *_neighbour(plan, i + 1))
        gates[rows, -cell.recurrent * H :].addmm_(read[:n], w_hh.t())
        _launch(
            "forward", h, gates, bias, eps, mask, carry, carries, h, read, *step,
            rows=n, cell=cell.name, additive=additive, projected=w_hr is not None,
        )  # fmt: skip
        if w_hr is not None:
            torch.mm(h[:n], w_hr.t(), out=z[rows])
            _launch("inject", z, eps, mask, z, read, *step, rows=n, additive=additive)
    return z, carries


def _backward(
    plan: Plan,
    gates: Tensor,
    w_hh: Tensor,
    w_hr: Tensor | None,
    eps: Tensor | None,
    mask: Tensor | None,
    carries: Tensor | None,
    initial: Tensor | None,
    d_z: Tensor,
    d_before: Tensor,
    d_carry: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    cell, additive = plan.cell, plan.mode == "additive"
    H = w_hh.shape[0] // cell.recurrent
    d_gates = torch.empty_like(gates)
    d_projected = None if w_hr is None else torch.empty_like(d_z)
    d_h = d_z if w_hr is None else gates.new_empty(plan.N, H)
    for i in reversed(range(len(plan.order))):
        rows, n = plan.rows(plan.order[i]), plan.sizes[plan.order[i]]
        step, after = (rows.start, n), _neighbour(plan, i + 1)
        if d_projected is not None and w_hr is not None:
            _launch(
                "receive", d_z, eps, mask, d_z, d_before, d_projected, *step, *after,
                rows=n, additive=additive,
            )  # fmt: skip
            torch.mm(d_projected[rows], w_hr, out=d_h[:n])
        _launch(
            "backward", d_h, gates, eps, mask, carries, initial, d_h, d_before, d_carry, d_gates,
            *step, *_neighbour(plan, i - 1), *after,
            rows=n, cell=cell.name, additive=additive, projected=w_hr is not None,
        )  # fmt: skip
        recurrent = d_gates[rows, -cell.recurrent * H :]
        if cell.slots > 1 and not cell.carry:  # a GRU's gradient along z is there already
            d_before[:n].addmm_(recurrent, w_hh)
        else:
            torch.mm(recurrent, w_hh, out=d_before[:n])
    if mask is not None:
        d_before.mul_(_first(plan, mask))
    return d_gates, d_projected


def _neighbour(plan: Plan, i: int) -> tuple[int, int]:
    """Where the rows of the i-th step of the recurrence start, and how many; none outside of it."""
    if not 0 <= i < len(plan.order):
        return 0, 0
    t = plan.order[i]
    return plan.offsets[t], plan.sizes[t]


def _first(plan: Plan, steps: Tensor) -> Tensor:
    """The row of every sequence at its first step in the order of the recurrence.

    Where time runs backward that is its last one, and short sequences begin in mid-course.
    """
    if not plan.reverse:
        return steps[: plan.N]
    ends = (*plan.sizes[1:], 0)
    parts = [steps[plan.offsets[t] + ends[t] : plan.offsets[t + 1]] for t in range(len(plan.sizes))]
    return torch.cat(parts[::-1])


def _launch(kernel: str, like: Tensor, *arguments: Any, rows: int, **options: Any) -> None:
    """Launch a kernel over these rows, of the width of a tensor."""
    H = like.shape[1]
    if rows == 0 or H == 0:
        return
    units = min(_UNITS, _power(H))
    tile = {"ROWS": _TILE // units, "UNITS": units}
    grid = (-(-rows // tile["ROWS"]), -(-H // units))
    constants = {name.upper(): value for name, value in options.items()}
    _kernel(kernel)[grid](*arguments, H, **constants, REAL=_real(like.dtype), **tile)


def _power(n: int) -> int:
    """The least power of two that is not less than n."""
    return 1 << (n - 1).bit_length()


@cache
def _kernel(name: str) -> Any:
    cells = importlib.import_module("noisin.recurrent.kernels.triton_cells")
    return getattr(cells, name)


@cache
def _real(dtype: torch.dtype) -> Any:
    """The type of the arithmetic for tensors of this dtype."""
    language = importlib.import_module("triton.language")
    return language.float64 if dtype == torch.float64 else language.float32


def _on(device: torch.device) -> AbstractContextManager[Any]:
    """Triton launches on the current device, which need not be that of the tensors."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
