"""The questions about what torch is doing, asked while it does it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from noisin._util import torch_state

QUESTIONS = ("transforming", "differentiating_forward", "dispatching", "in_backward", "autocasting")


def answers() -> list[str]:
    """The questions that are answered with yes."""
    return [name for name in QUESTIONS if getattr(torch_state, name)()]


def inside(start: Any) -> list[str]:
    """What is answered inside a function that ``start`` has torch call."""
    found: list[list[str]] = []

    def function(x: Tensor) -> Tensor:
        found.append(answers())
        return x.sum()

    start(function)
    return found[0]


def in_backward(function: Any) -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: function(g) * 0 + g)
    y.sum().backward()


def in_context(context: Any) -> Any:
    def start(function: Any) -> None:
        with context():
            function(torch.ones(2))

    return start


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (lambda f: f(torch.ones(2)), []),
        (lambda f: torch.func.vmap(f)(torch.ones(3, 2)), ["transforming"]),
        (lambda f: torch.func.grad(f)(torch.ones(2)), ["transforming"]),
        (in_context(torch.autograd.forward_ad.dual_level), ["differentiating_forward"]),
        (in_context(lambda: FlopCounterMode(display=False)), ["dispatching"]),
        (in_context(lambda: torch.autocast("cpu", torch.bfloat16)), ["autocasting"]),
        (in_backward, ["in_backward"]),
    ],
)
def test_only_what_torch_does_is_answered_with_yes(start: Any, expected: list[str]) -> None:
    assert inside(start) == expected
    assert answers() == []


def test_the_dtype_of_products_under_autocast() -> None:
    x = torch.ones(2)
    assert torch_state.autocast_dtype(x) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert torch_state.autocast_dtype(x) == torch.bfloat16
        assert torch_state.autocast_dtype(x.double()) is None


def test_tensors_whose_values_can_be_read() -> None:
    found: list[tuple[bool, bool]] = []

    def note(x: Tensor) -> Tensor:
        found.append((torch_state.values_known(x), torch_state.plain(x)))
        return x.sum()

    note(torch.ones(2))
    torch.func.vmap(note)(torch.ones(3, 2))
    torch.func.grad(note)(torch.ones(2))
    assert found == [(True, True), (False, False), (False, True)]
    assert not torch_state.values_known(torch.ones(2, device="meta"))


def test_gradients_in_batches() -> None:
    seen: list[bool] = []
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: seen.append(torch_state.batched_by_autograd(g)))
    torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)
    assert seen == [True]
