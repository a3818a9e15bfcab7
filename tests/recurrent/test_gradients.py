"""First-order gradients against finite differences, second-order ones right or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from noisin.recurrent.stack import NoisyStack
from tests.cases import ALL, KINDS, PLAIN, UNFED, Case, F
from tests.pairwise import table

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported")


def as_tuple(state: Any) -> tuple[Tensor, ...]:
    return tuple(state) if isinstance(state, tuple) else (state,)


def function_of_everything(
    case: Case, rnn: NoisyStack, packed: PackedSequence | None = None
) -> tuple[Callable[..., tuple[Tensor, ...]], list[Tensor]]:
    """The RNN as a function of its input, initial state, noise and weights."""
    names = [name for name, _ in rnn.named_parameters()]
    x = torch.randn(3, 2, F, dtype=torch.float64) if packed is None else packed.data
    T, N = (3, 2) if packed is None else (len(packed.batch_sizes), int(packed.batch_sizes[0]))
    state = as_tuple(case.state(N))
    tensors = [x, case.eps(T, N), *state, *(p.detach() for p in rnn.parameters())]

    def call(x: Tensor, eps: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        hx = rest[: len(state)] if len(state) > 1 else rest[0]
        weights = dict(zip(names, rest[len(state) :], strict=True))
        given = x if packed is None else PackedSequence(x, *packed[1:])
        z, state_n = torch.func.functional_call(rnn, weights, (given, hx), {"eps": eps})
        return (z.data if packed is not None else z, *as_tuple(state_n))

    return call, [t.clone().requires_grad_() for t in tensors]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_gradcheck(case: Case) -> None:
    """With respect to input, state, noise and weights."""
    function, tensors = function_of_everything(case, case.make())
    assert gradcheck(function, tensors, fast_mode=True)


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck_entry_by_entry(kind: str) -> None:
    case = Case(kind, num_layers=1)
    function, tensors = function_of_everything(case, case.make())
    assert gradcheck(function, tensors)


@pytest.mark.parametrize("case", PLAIN + UNFED, ids=str)
def test_gradcheck_packed(case: Case) -> None:
    packed = pack_sequence(
        [torch.randn(n, F, dtype=torch.float64) for n in (2, 3, 1)], enforce_sorted=False
    )
    function, tensors = function_of_everything(case, case.make(), packed)
    assert gradcheck(function, tensors, fast_mode=True)


@pytest.mark.parametrize(
    ("case", "way", "loss"),
    table(PLAIN + UNFED, ["autograd.grad", "backward"], ["linear", "nonlinear"]),
    ids=str,
)
def test_second_order_gradients_are_right(case: Case, way: str, loss: str) -> None:
    """The gradient of a gradient penalty against finite differences of the penalty."""
    rnn = case.make()
    x, eps = torch.randn(3, 2, F, dtype=torch.float64, requires_grad=True), case.eps(3, 2)

    def penalty() -> Tensor:
        z, _ = rnn(x, eps=eps)
        value = z.sum() if loss == "linear" else z.pow(3).sum()
        (gradient,) = torch.autograd.grad(value, x, create_graph=True)
        return gradient.pow(2).sum()

    weight = rnn.weight_hh_l1
    if way == "backward":
        rnn.zero_grad()
        penalty().backward()
        second = weight.grad
    else:
        (second,) = torch.autograd.grad(penalty(), weight)
    direction = torch.randn_like(weight)
    step = 1e-5
    with torch.no_grad():
        weight += step * direction
    above = penalty().item()
    with torch.no_grad():
        weight -= 2 * step * direction
    below = penalty().item()
    slope = (above - below) / (2 * step)
    assert (second * direction).sum().item() == pytest.approx(slope, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("case", PLAIN + UNFED, ids=str)
def test_second_order_gradients_in_float32_agree_with_float64(case: Case) -> None:
    """Torch's float32 kernels are others than its float64 ones: both are right, or refused."""
    rnn = case.make()
    x, eps = torch.randn(3, 2, F, dtype=torch.float64), case.eps(3, 2)

    def second(rnn: NoisyStack, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        z, _ = rnn(x, eps=eps)
        (gradient,) = torch.autograd.grad(z.pow(2).sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.pow(2).sum(), rnn.weight_ih_l0)[0]

    want = second(rnn, x)
    torch.testing.assert_close(second(rnn.float(), x.float()).double(), want, rtol=1e-3, atol=1e-4)


def test_gradient_flows_only_where_asked() -> None:
    rnn = Case("lstm").make()
    for p in rnn.parameters():
        p.requires_grad_(False)
    z, _ = rnn(torch.randn(3, 2, F, dtype=torch.float64))
    assert not z.requires_grad
    with torch.no_grad():
        assert not Case("lstm").make()(torch.randn(3, 2, F, dtype=torch.float64))[0].requires_grad
