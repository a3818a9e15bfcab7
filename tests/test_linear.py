"""linear_nll: the full computation in value and gradients, without ever holding all logits."""
# ruff: noqa: E501 - a message is one line, as its reader sees it

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from noisin import linear_nll
from noisin.errors import InvalidType, InvalidValue
from noisin.likelihoods import Categorical

F64 = torch.float64
few = settings(derandomize=True, deadline=None, max_examples=40, database=None)


def generator(seed: int = 1111) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def full_nll(z: Tensor, V: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
    s = z @ V if bias is None else z @ V + bias
    return Categorical().nll(s=s, x=x)


def linear_problem(lead, H=3, O=5, bias=True, seed=0):  # noqa: E741
    g = generator(seed)
    z, V, b = (
        torch.randn(shape, dtype=F64, generator=g, requires_grad=True)
        for shape in [(*lead, H), (H, O), (O,)]
    )
    x = torch.randint(O, lead, generator=g)
    return (z, V, x, b) if bias else (z, V, x)


def first_and_second_gradients(nll: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    first = torch.autograd.grad(nll.square().sum(), inputs, create_graph=True)
    curved = sum(g.pow(3).sum() for g in first)
    return [*first, *torch.autograd.grad(curved, inputs)]


@given(
    lead=st.lists(st.integers(0, 5), max_size=3).map(tuple),
    H=st.integers(1, 4),
    O=st.integers(1, 6),
    bias=st.booleans(),
    chunk_size=st.integers(1, 12),
)
@few
def test_linear_nll_is_the_full_computation(lead, H, O, bias, chunk_size):  # noqa: E741
    problem = linear_problem(lead, H, O, bias)
    inputs = [t for t in problem if t.requires_grad]
    chunked, full = linear_nll(*problem, chunk_size=chunk_size), full_nll(*problem)
    assert chunked.shape == lead
    torch.testing.assert_close(chunked, full, rtol=1e-12, atol=1e-13)
    for found, expected in zip(
        first_and_second_gradients(chunked, inputs),
        first_and_second_gradients(full, inputs),
        strict=True,
    ):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
def test_linear_nll_gradcheck(bias):
    z, V, x, *rest = linear_problem((5,), bias=bias)

    def f(z, V, *rest):
        return linear_nll(z, V, x, *rest, chunk_size=2)

    assert torch.autograd.gradcheck(f, (z, V, *rest))
    assert torch.autograd.gradgradcheck(f, (z, V, *rest))


def test_linear_nll_with_tied_weights():
    z, _, x, b = linear_problem((2, 4))
    weight = torch.randn(5, 3, dtype=F64, generator=generator(), requires_grad=True)
    chunked, full = (
        torch.autograd.grad(f(z, weight.t(), x, b).mean(), weight)[0]
        for f in (linear_nll, full_nll)
    )
    torch.testing.assert_close(chunked, full)


def test_linear_nll_without_gradient_and_under_torch_func():
    z, V, x, b = linear_problem((7,))
    with torch.no_grad():
        nll = linear_nll(z, V, x, b, chunk_size=3)
    assert not nll.requires_grad
    torch.testing.assert_close(nll, full_nll(z, V, x, b).detach())
    for f in (torch.func.grad, lambda f: torch.func.jacrev(torch.func.grad(f))):
        torch.testing.assert_close(
            f(lambda V: linear_nll(z, V, x, b, chunk_size=3).sum())(V),
            f(lambda V: full_nll(z, V, x, b).sum())(V),
        )


def test_linear_nll_under_autocast():
    z, V, x, b = (t.float() if t.is_floating_point() else t for t in linear_problem((7,)))
    with torch.autocast("cpu", torch.bfloat16):
        nll = linear_nll(z, V, x, b, chunk_size=3)
    assert nll.dtype == torch.float32
    torch.testing.assert_close(nll, full_nll(z, V, x, b), rtol=0.05, atol=0.05)


class LargestTensor(TorchDispatchMode):
    """The largest number of elements of any tensor that an operation returns."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        sizes = [t.numel() for t in tree_leaves(out) if isinstance(t, Tensor)]
        self.size = max([self.size, *sizes])
        return out


def largest_tensor(f: Callable[..., Tensor], *args) -> int:
    with LargestTensor() as largest:
        f(*args).sum().backward()
    return largest.size


@pytest.mark.parametrize("bias", [True, False])
def test_linear_nll_never_holds_all_logits(bias):
    H, outputs, lead, chunk_size = 3, 50, (8, 5), 7
    problem = linear_problem(lead, H, outputs, bias)
    rows = math.prod(lead)
    chunked = largest_tensor(lambda *args: linear_nll(*args, chunk_size=chunk_size), *problem)
    assert chunked == chunk_size * outputs
    assert largest_tensor(full_nll, *problem) == rows * outputs
    assert (
        largest_tensor(lambda *args: linear_nll(*args, chunk_size=rows), *problem) == rows * outputs
    )


def test_linear_nll_saves_no_logits_for_the_backward_pass():
    saved = []
    z, V, x, b = linear_problem((40,), H=3, O=50)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()), lambda t: t):
        linear_nll(z, V, x, b, chunk_size=7)
    assert max(saved, default=0) < 7 * 50
    saved.clear()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()), lambda t: t):
        full_nll(z, V, x, b)
    assert max(saved) == 40 * 50


Z, V, B = torch.zeros(2, 4, 3), torch.zeros(3, 5), torch.zeros(5)
TARGETS = torch.zeros(2, 4, dtype=torch.int64)
SHAPES = "expected z (..., H), V (H, O), x (...) and bias (O,). Of an nn.Linear or nn.Embedding, pass weight.t() as V."


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((Z.tolist(), V, TARGETS), InvalidType, "linear_nll: z must be a tensor, got list. Convert it with torch.as_tensor(z)."),
        ((Z, V, TARGETS, 0.5), InvalidType, "linear_nll: bias must be a tensor, got float. Convert it with torch.as_tensor(bias)."),
        ((Z, V.t(), TARGETS), InvalidValue, f"linear_nll: got the shapes z (2, 4, 3), V (5, 3), x (2, 4); {SHAPES}"),
        ((Z, V[0], TARGETS), InvalidValue, f"linear_nll: got the shapes z (2, 4, 3), V (5,), x (2, 4); {SHAPES}"),
        ((Z, V, TARGETS[0]), InvalidValue, f"linear_nll: got the shapes z (2, 4, 3), V (3, 5), x (4,); {SHAPES}"),
        ((Z[0, 0, 0], V, TARGETS[0, 0]), InvalidValue, f"linear_nll: got the shapes z (), V (3, 5), x (); {SHAPES}"),
        ((Z, V, TARGETS, B[:1]), InvalidValue, f"linear_nll: got the shapes z (2, 4, 3), V (3, 5), x (2, 4), bias (1,); {SHAPES}"),
        ((Z, V, TARGETS, B, 0), InvalidValue, "linear_nll: chunk_size must be a whole number of rows, 1 or more, got 0. The default is 256."),
        ((Z, V, TARGETS, B, 2.0), InvalidValue, "linear_nll: chunk_size must be a whole number of rows, 1 or more, got 2.0. The default is 256."),
        ((Z, V, TARGETS, B, True), InvalidValue, "linear_nll: chunk_size must be a whole number of rows, 1 or more, got True. The default is 256."),
        ((Z, V, TARGETS + 5), InvalidValue, "likelihoods.Categorical: x must be one of the classes 0 ... O - 1, got 5 with s of shape (8, 5). To leave entries out, select the others: nll(s[keep], x[keep])."),
        ((Z, V, TARGETS.float()), InvalidType, "likelihoods.Categorical: x must hold integer class numbers, got torch.float32. Convert one-hot or probability targets with x.argmax(-1)."),
    ],
)  # fmt: skip
def test_errors_of_linear_nll(arguments, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        linear_nll(*arguments)
