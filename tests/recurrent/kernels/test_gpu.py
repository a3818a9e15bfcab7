"""Which kernel runs on a GPU, as far as that can be told without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from noisin.recurrent import kernels
from noisin.recurrent.cell import KERNEL_CELLS
from noisin.recurrent.kernels import gpu, graphs
from noisin.recurrent.kernels.choice import recurrence_for
from noisin.recurrent.kernels.plan import Plan


@pytest.mark.parametrize(
    ("choice", "device", "runs", "kernel"),
    [
        ("auto", "cuda", True, "triton"),
        ("auto", "cuda", False, "eager"),
        ("triton", "cuda", True, "triton"),
        ("triton", "cuda", False, "eager"),
        ("triton", "cpu", True, "triton"),
        ("triton", "cpu", False, "eager"),
        ("c", "cuda", True, "eager"),
        ("eager", "cuda", True, "eager"),
    ],
)
def test_the_kernel_by_choice_and_device(
    choice: str, device: str, runs: bool, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "runs", lambda x: runs)
    x = SimpleNamespace(device=torch.device(device), dtype=torch.float32)
    with kernels.using(choice):
        assert recurrence_for(x) == kernel


@pytest.mark.parametrize(
    ("dtype", "device", "capturing", "tried"),
    [
        (torch.float32, "cuda:1", False, ["cuda:1"]),
        (torch.float16, "cuda:0", False, ["cuda:0"]),
        (torch.bfloat16, "cuda:0", False, ["cuda:0"]),
        (torch.float64, "cuda:0", False, ["cuda:0"]),
        (torch.float32, "cuda:0", True, []),
        (torch.complex64, "cuda:0", False, []),
        (torch.float32, "mps", False, []),
        (torch.float32, "cpu", False, []),
    ],
)
def test_where_it_is_tried(
    dtype: torch.dtype,
    device: str,
    capturing: bool,
    tried: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On each device by itself, never while a graph is recorded, nor on a CPU unasked."""
    found: list[str] = []
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(gpu, "_works", lambda device: found.append(device) or True)
    monkeypatch.setattr(graphs, "capturing", lambda: capturing)
    x = SimpleNamespace(device=torch.device(device), dtype=dtype)
    assert gpu.runs(x) is bool(tried)
    assert found == tried


@pytest.mark.parametrize(
    ("capability", "product", "works"),
    [((7, 5), 3.0, None), ((8, 0), 3.0, True), ((9, 0), 2.0, False), ((9, 0), None, False)],
)
def test_it_is_trusted_where_a_launch_is_right(
    capability: tuple[int, int],
    product: float | None,
    works: bool | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not on a device that is too old, nor where a kernel is wrong or raises."""
    launched: list[str] = []

    def launch(
        kernel: str, z: Any, eps: Any, mask: Any, out: Any, read: Any, *_: Any, **__: Any
    ) -> None:
        launched.append(kernel)
        if product is None:
            raise OSError("Failed to find C compiler")
        out.fill_(product)
        read.fill_(product)

    full = torch.full
    monkeypatch.setattr(gpu, "_launch", launch)
    monkeypatch.setattr(gpu, "_on", lambda device: torch.no_grad())
    monkeypatch.setattr(torch, "full", lambda *given, device: full(*given))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert gpu._works.__wrapped__("cuda:0") is bool(works)
    assert launched == ([] if works is None else ["inject"])


@pytest.mark.parametrize("reverse", [False, True])
def test_the_first_row_of_every_sequence(reverse: bool) -> None:
    """Time that runs backward begins at the end of each."""
    plan = Plan(KERNEL_CELLS["lstm"], "additive", (4, 2, 2, 1), reverse)
    steps = torch.tensor([[0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [1, 1], [2, 0], [2, 1], [3, 0]])
    expected = [[3, 0], [2, 1], [0, 2], [0, 3]] if reverse else [[0, n] for n in range(4)]
    assert gpu._first(plan, steps).tolist() == expected
