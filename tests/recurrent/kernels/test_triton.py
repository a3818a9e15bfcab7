"""The Triton kernels without a GPU: values by the interpreter, and compiled for three targets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from noisin.recurrent.cell import KERNEL_CELLS as CELLS
from noisin.recurrent.kernels import gpu
from noisin.recurrent.kernels.plan import Plan
from tests.pairwise import PRODUCTS, table

triton = pytest.importorskip("triton", reason="needs triton: pip install 'noisin[gpu]'")

if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("TRITON_INTERPRET=1 compiles nothing", allow_module_level=True)

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.runtime import driver  # noqa: E402

from noisin.recurrent.kernels import triton_cells  # noqa: E402

VALUES = Path(__file__).parent / "interpreted" / "values.py"
TARGETS = {
    "sm_80": (GPUTarget("cuda", 80, 32), "cubin"),
    "sm_90": (GPUTarget("cuda", 90, 32), "cubin"),
    "gfx942": (GPUTarget("hip", "gfx942", 64), "hsaco"),
}
# In a table of pairs the slow doubles occur for two cells; float16 is converted as bfloat16 is.
DTYPES = [torch.float32, torch.bfloat16]
DTYPES += [torch.float16, torch.float64] if PRODUCTS else []


def test_values_and_gradients_by_the_interpreter() -> None:
    """Every test of ``interpreted/values.py``, in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(VALUES)]
    env = {name: v for name, v in os.environ.items() if not name.startswith(("PYTEST", "NOISIN_K"))}
    done = subprocess.run(
        command,
        env=env | {"TRITON_INTERPRET": "1"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


class Compiled:
    """A kernel that is compiled where it would be launched, and what came out."""

    def __init__(self, name: str, found: dict[str, list[Any]]) -> None:
        self.kernel, self.found = getattr(triton_cells, name), found.setdefault(name, [])

    def __getitem__(self, grid: tuple[int, int]) -> Any:
        def compile(*arguments: Any, **constants: Any) -> None:
            self.found.append(self.kernel.run(*arguments, grid=grid, warmup=True, **constants))

        return compile


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: str) -> dict[str, list[Any]]:
    """What the launches from here on are compiled to, by kernel, as on a machine with this GPU.

    Triton binds and specializes the arguments as it does there; only the driver is made up.
    """
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # so that something is compiled
    stub = SimpleNamespace(
        get_current_target=lambda: TARGETS[target][0],
        get_current_device=lambda: [*TARGETS].index(target),
        get_current_stream=lambda device: 0,
    )
    monkeypatch.setattr(driver, "_active", stub)
    for kernel in ("forward", "inject", "backward", "receive"):
        getattr(triton_cells, kernel).device_caches.clear()
    found: dict[str, list[Any]] = {}
    monkeypatch.setattr(gpu, "_kernel", lambda name: Compiled(name, found))
    return found


def run_both(
    plan: Plan, H: int, P: int, dtype: torch.dtype, *, bias: bool, masked: bool, keep: bool
) -> None:
    """Forward and backward of the recurrence, whose kernels do nothing here."""
    cell, N, S = plan.cell, plan.N, sum(plan.sizes)

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=dtype)

    G, out = cell.slots * H, P or H
    w_hh, w_hr = zeros(cell.recurrent * H, out), zeros(P, H) if P else None
    eps, mask = zeros(S, out), zeros(S, out) if masked else None
    state = [zeros(N, out), zeros(N, H)][: 1 + cell.carry]
    z, carries = gpu.forward(
        plan, zeros(S, G), zeros(G) if bias else None, w_hh, w_hr, eps, mask, state, keep
    )
    assert (carries is not None) == (cell.carry and keep)
    carries = zeros(S, H) if cell.carry else None
    d_state = [s.clone() for s in state]
    gpu.backward(
        plan, zeros(S, G), w_hh, w_hr, eps, mask, state, z, carries, zeros(S, out), d_state
    )


VARIANTS = table(
    (*CELLS, "lstm-proj"), (*TARGETS,), DTYPES, (64, 33),
    ("multiplicative", "additive"), (True, False), (False, True),
    where=lambda cell, target, dtype, H, mode, masked, bare: not (masked and cell == "gru-state"),
)  # fmt: skip
VARIANTS += [
    ("gru-state", "sm_80", torch.float64, 33, "additive", False, False),
    ("lstm", "gfx942", torch.float64, 64, "multiplicative", True, False),
]


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "target", "dtype", "H", "mode", "masked", "bare"), VARIANTS)
def test_every_kernel_compiles(
    compiled: dict[str, list[Any]],
    cell: str,
    target: str,
    dtype: torch.dtype,
    H: int,
    mode: Any,
    masked: bool,
    bare: bool,
) -> None:
    """To machine code, once for all steps, and without doubles unless the tensors are.

    A bare one has no bias and keeps nothing for a backward pass.
    """
    plan = Plan(CELLS[cell.removesuffix("-proj")], mode, (16, 9, 2, 1))
    P = 16 if cell == "lstm-proj" else 0
    run_both(plan, H, P, dtype, bias=not bare, masked=masked, keep=not bare)
    names = {"forward", "backward"} | ({"inject", "receive"} if P else set())
    assert compiled.keys() == names
    for kernels in compiled.values():
        assert len(kernels) == len(plan.sizes)
        assert all(kernel is kernels[0] for kernel in kernels)
        code = kernels[0].asm
        assert code[TARGETS[target][1]].startswith(b"\x7fELF")
        assert ("double" in code["llir"]) == (dtype == torch.float64)
