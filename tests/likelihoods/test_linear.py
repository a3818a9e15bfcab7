"""linear_nll: the full computation in value and gradients, without ever holding all logits."""
# ruff: noqa: E501 - a message is one line, as its reader sees it

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from noisin import linear_nll
from noisin.errors import InvalidType, InvalidValue
from noisin.likelihoods import Categorical
from noisin.likelihoods._chunked import FEW

F64 = torch.float64
REDUCTIONS = ["none", "sum", "mean"]
few = settings(derandomize=True, deadline=None, max_examples=40, database=None)


def generator(seed: int = 1111) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def full_nll(
    z: Tensor, V: Tensor, x: Tensor, bias: Tensor | None = None, reduction: str = "none"
) -> Tensor:
    s = z @ V if bias is None else z @ V + bias
    nll = Categorical().nll(s=s, x=x)
    return nll if reduction == "none" else getattr(nll, reduction)()


def linear_problem(
    lead: tuple[int, ...],
    H: int = 3,
    O: int = 5,  # noqa: E741
    bias: bool = True,
    seed: int = 0,
) -> Any:
    g = generator(seed)
    z, V, b = (
        torch.randn(shape, dtype=F64, generator=g, requires_grad=True)
        for shape in [(*lead, H), (H, O), (O,)]
    )
    x = torch.randint(O, lead, generator=g)
    return (z, V, x, b) if bias else (z, V, x)


def first_gradients(nll: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(nll.square().sum(), inputs, retain_graph=True)


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
    reduction=st.sampled_from(REDUCTIONS),
)
@few
def test_linear_nll_is_the_full_computation(
    lead: tuple[int, ...],
    H: int,
    O: int,  # noqa: E741
    bias: bool,
    chunk_size: int | None,
    reduction: str,
) -> None:
    problem = linear_problem(lead, H, O, bias)
    inputs = [t for t in problem if t.requires_grad]
    chunked = linear_nll(*problem, chunk_size=chunk_size, reduction=reduction)
    full = full_nll(*problem, reduction=reduction)
    close = partial(torch.testing.assert_close, equal_nan=True)  # the mean of nothing
    close(chunked, full, rtol=1e-12, atol=1e-13)
    for order in (first_gradients, first_and_second_gradients):
        for found, expected in zip(order(chunked, inputs), order(full, inputs), strict=True):
            close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_linear_nll_gradcheck(bias: bool, reduction: str) -> None:
    z, V, x, *rest = linear_problem((5,), bias=bias)

    def f(z: Any, V: Any, *rest: Any) -> Any:
        return linear_nll(z, V, x, *rest, chunk_size=2, reduction=reduction)

    assert torch.autograd.gradcheck(f, (z, V, *rest))
    assert torch.autograd.gradgradcheck(f, (z, V, *rest))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("frozen", [(0,), (1,), (3,), (0, 1), (0, 1, 3)])
def test_linear_nll_with_some_inputs_frozen(frozen: str, reduction: str) -> None:
    problem = linear_problem((7,))
    for k in frozen:
        problem[k].requires_grad_(False)
    inputs = [t for t in problem if t.requires_grad]
    chunked, full = (f(*problem, reduction=reduction) for f in (linear_nll, full_nll))
    torch.testing.assert_close(chunked, full)
    if not inputs:
        assert not chunked.requires_grad
        return
    for order in (first_gradients, first_and_second_gradients):
        torch.testing.assert_close(order(chunked, inputs), order(full, inputs))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_linear_nll_with_tied_weights(reduction: str) -> None:
    """z comes from the same weight; what V itself contributes is a partial derivative."""
    _, _, x, b = linear_problem((2, 4))
    weight = torch.randn(5, 3, dtype=F64, generator=generator(), requires_grad=True)

    def derivatives(f: Any, order: int) -> Any:
        V = weight.t()
        z = V.t()[x].tanh()  # depends on V itself, not only on what V is a view of
        return order(f(z, V, x, b, reduction=reduction), [weight, z, V])

    for order in (first_gradients, first_and_second_gradients):
        torch.testing.assert_close(derivatives(linear_nll, order), derivatives(full_nll, order))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_linear_nll_goes_backward_twice(reduction: str) -> None:
    """The gradients of the first pass were handed over, and may have been changed since."""
    problem = linear_problem((7,))
    z, V, _, b = problem
    (nll := linear_nll(*problem, chunk_size=3, reduction=reduction).sum()).backward(
        retain_graph=True
    )
    once = [t.grad.clone() for t in (z, V, b)]
    for t in (z, V, b):
        t.grad.zero_()
    (3 * nll).backward()
    for t, grad in zip((z, V, b), once, strict=True):
        torch.testing.assert_close(t.grad, 3 * grad)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_linear_nll_without_gradient_and_under_torch_func(reduction: str) -> None:
    z, V, x, b = linear_problem((7,))
    with torch.no_grad():
        nll = linear_nll(z, V, x, b, chunk_size=3, reduction=reduction)
    assert not nll.requires_grad
    torch.testing.assert_close(nll, full_nll(z, V, x, b, reduction).detach())
    for f in (torch.func.grad, lambda f: torch.func.jacrev(torch.func.grad(f))):
        torch.testing.assert_close(
            f(lambda V: linear_nll(z, V, x, b, chunk_size=3, reduction=reduction).sum())(V),
            f(lambda V: full_nll(z, V, x, b, reduction).sum())(V),
        )
    batch = torch.stack([z, 2 * z])
    torch.testing.assert_close(
        torch.vmap(lambda z: linear_nll(z, V, x, b, chunk_size=3, reduction=reduction))(batch),
        torch.vmap(lambda z: full_nll(z, V, x, b, reduction))(batch),
    )


@pytest.mark.filterwarnings(
    "ignore:.torch.jit.script. is deprecated"
)  # by torch's own dual numbers
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_linear_nll_in_forward_mode_and_with_batched_gradients(reduction: str) -> None:
    z, V, x, b = linear_problem((7,))
    direction = torch.randn(V.shape, dtype=F64, generator=generator())

    def along(f: Any) -> Any:
        with forward_ad.dual_level():
            nll = f(z, forward_ad.make_dual(V.detach(), direction), x, b, reduction=reduction)
            return forward_ad.unpack_dual(nll).tangent

    def jacobian(f: Any) -> Any:
        g = partial(f, x=x, bias=b, reduction=reduction)
        return torch.autograd.functional.jacobian(g, (z, V), vectorize=True)

    for derivative in (along, jacobian):
        torch.testing.assert_close(derivative(linear_nll), derivative(full_nll))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_linear_nll_under_autocast(reduction: str) -> None:
    problem = [t.float() if t.is_floating_point() else t for t in linear_problem((7,))]
    inputs = [t.detach().requires_grad_() for t in problem if t.is_floating_point()]
    z, V, b = inputs
    with torch.autocast("cpu", torch.bfloat16):
        chunked, full = (
            f(z, V, problem[2], b, reduction=reduction)
            for f in (partial(linear_nll, chunk_size=3), full_nll)
        )
    assert chunked.dtype == torch.float32
    torch.testing.assert_close(chunked, full, rtol=0.01, atol=0.01)
    found = torch.autograd.grad(chunked.sum(), inputs)
    assert all(gradient.dtype == torch.float32 for gradient in found)
    torch.testing.assert_close(found, torch.autograd.grad(full.sum(), inputs), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_linear_nll_in_less_precision(dtype: torch.dtype, reduction: str) -> None:
    """As close to float64 as the precision allows, in whatever number of chunks."""
    exact = linear_problem((300,), H=8, O=20)
    rough = [t.detach().to(dtype).requires_grad_() for t in (exact[0], exact[1], exact[3])]
    z, V, b = rough
    nll = linear_nll(z, V, exact[2], b, chunk_size=7, reduction=reduction)
    assert nll.dtype == torch.float32
    inputs = [exact[0], exact[1], exact[3]]
    found = torch.autograd.grad(nll.sum(), rough)
    expected = torch.autograd.grad(full_nll(*exact, reduction=reduction).sum(), inputs)
    for gradient, truth in zip(found, expected, strict=True):
        assert gradient.dtype == dtype
        assert (gradient.double() - truth).norm() < 4 * torch.finfo(dtype).eps * truth.norm()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [F64, torch.bfloat16])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("rows", [1, FEW, FEW + 1])
def test_linear_nll_of_few_rows(rows: int, tied: bool, dtype: torch.dtype, reduction: str) -> None:
    """The gradient of V is a batch of products, more than one for 150 words or 70 units."""
    z, V, x, b = linear_problem((rows,), H=70, O=150)
    V = V.detach().t().contiguous().t().requires_grad_() if tied else V
    rough = [t.detach().to(dtype).requires_grad_() for t in (z, V, b)]
    nll = linear_nll(rough[0], rough[1], x, rough[2], reduction=reduction)
    found = torch.autograd.grad(nll.sum(), rough, retain_graph=True)
    again = torch.autograd.grad(3 * nll.sum(), rough)
    expected = torch.autograd.grad(full_nll(z, V, x, b, reduction=reduction).sum(), [z, V, b])
    assert found[1].stride() == V.stride() or rows > FEW
    for gradient, second, truth in zip(found, again, expected, strict=True):
        tolerance = 10 * torch.finfo(dtype).eps * truth.norm()
        assert (gradient.double() - truth).norm() < tolerance
        assert (second.double() - 3 * truth).norm() < 3 * tolerance


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_linear_nll_of_extreme_logits(reduction: str) -> None:
    """Where the largest logit is far away, and where a class is impossible."""
    x = torch.tensor([0, 1, 2])
    z = torch.tensor([[1.0], [-1.0], [300.0]], dtype=F64, requires_grad=True)
    V = torch.tensor([[700.0, 0.0, -700.0, 3.0]], dtype=F64, requires_grad=True)
    b = torch.tensor([0.0, 0.0, 0.0, -math.inf], dtype=F64)
    chunked, full = (f(z, V, x, b, reduction=reduction) for f in (linear_nll, full_nll))
    torch.testing.assert_close(chunked, full)
    for found, expected in zip(
        torch.autograd.grad(chunked.sum(), [z, V]),
        torch.autograd.grad(full.sum(), [z, V]),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)


class LargestTensor(TorchDispatchMode):
    """The largest number of elements of the memory that any operation takes."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {t.untyped_storage()._cdata for t in tensors_of((args, kwargs))}
        out = func(*args, **(kwargs or {}))
        for t in tensors_of(out):
            if t.untyped_storage()._cdata not in given:
                self.size = max(self.size, t.untyped_storage().nbytes() // t.itemsize)
        return out


def tensors_of(tree: object) -> list[Tensor]:
    return [t for t in tree_leaves(tree) if isinstance(t, Tensor)]


def largest_tensor(f: Callable[..., Tensor], *args: Any) -> int:
    with LargestTensor() as largest:
        f(*args).sum().backward()
    return largest.size


@pytest.mark.parametrize("bias", [True, False])
def test_linear_nll_never_holds_all_logits(bias: bool) -> None:
    H, outputs, lead, chunk_size = 3, 48, (8, 5), 7
    problem = linear_problem(lead, H, outputs, bias)
    rows = math.prod(lead)
    chunked = largest_tensor(lambda *args: linear_nll(*args, chunk_size=chunk_size), *problem)
    assert chunked == chunk_size * outputs
    assert largest_tensor(full_nll, *problem) == rows * outputs
    assert (
        largest_tensor(lambda *args: linear_nll(*args, chunk_size=rows), *problem) == rows * outputs
    )


def test_linear_nll_saves_no_logits_for_the_backward_pass() -> None:
    saved = []
    z, V, x, b = linear_problem((40,), H=3, O=50)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()), lambda t: t):
        linear_nll(z, V, x, b, chunk_size=7)
    assert max(saved, default=0) < 7 * 50
    saved.clear()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()), lambda t: t):
        full_nll(z, V, x, b)
    assert max(saved) == 40 * 50


def test_gradients_that_are_not_needed_take_no_memory() -> None:
    H, outputs = 40, 48
    z, V, x = linear_problem((6,), H, outputs, bias=False)

    def largest(reduction: str) -> int:
        return largest_tensor(lambda: linear_nll(z, V, x, chunk_size=2, reduction=reduction))

    assert largest("mean") == largest("none") == H * outputs
    V.requires_grad_(False)
    assert largest("mean") == largest("none") == 6 * H  # the gradient for z
    with torch.no_grad(), LargestTensor() as held:
        linear_nll(z, V, x, chunk_size=2, reduction="mean")
    assert held.size == 2 * outputs


class Products(TorchDispatchMode):
    """The number of multiplications in all matrix products."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._overloadpacket.__name__
        if name in ("mm", "addmm", "addmm_"):
            a, b = args[-2:]
            self.count += a.shape[0] * a.shape[1] * b.shape[1]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("reduction", "chunk_size", "products"),
    [("none", 4, 4), ("none", 10, 3), ("sum", 4, 3), ("mean", 4, 3)],
)
def test_a_reduced_nll_takes_three_products_and_no_other(
    reduction: str, chunk_size: int, products: int
) -> None:
    """Forward, and two for the gradients; else logits are computed again, unless they are few."""
    z, V, x, b = linear_problem((10,), H=3, O=7)
    with Products() as counted:
        linear_nll(z, V, x, b, chunk_size=chunk_size, reduction=reduction).sum().backward()
    assert counted.count == products * 10 * 3 * 7


Z, V, B = torch.zeros(2, 4, 3), torch.zeros(3, 5), torch.zeros(5)
TARGETS = torch.zeros(2, 4, dtype=torch.int64)
SHAPES = "expected z (..., H), V (H, O), x (...) and bias (O,). For an nn.Linear or nn.Embedding, pass weight.t() as V."


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
        ((Z, V, TARGETS, B, 8, "max"), InvalidValue, "linear_nll: reduction must be 'none' or 'sum' or 'mean', got 'max'."),
        ((Z, V, TARGETS + 5), InvalidValue, "likelihoods.Categorical: x must be one of the classes 0 ... O - 1, got 5 with s of shape (8, 5). To leave entries out, select the others: nll(s[keep], x[keep])."),
        ((Z, V, TARGETS.float()), InvalidType, "likelihoods.Categorical: x must contain integer class numbers, got torch.float32. Convert one-hot or probability targets with x.argmax(-1)."),
    ],
)  # fmt: skip
def test_errors_of_linear_nll(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        linear_nll(*arguments)
