"""mixture_nll: the mixture of softmaxes in value and gradients, without holding its logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from noisin.errors import NoisinError
from noisin.likelihoods.mixture import mixture_nll
from tests.pairwise import table

F64 = torch.float64
REDUCTIONS = ["none", "sum", "mean"]


def full_nll(
    latent: Tensor,
    V: Tensor,
    x: Tensor,
    log_prior: Tensor,
    bias: Tensor | None = None,
    reduction: str = "none",
) -> Tensor:
    """The textbook: the probabilities of all experts and words in one tensor."""
    p = (latent @ V + (0 if bias is None else bias)).softmax(-1)
    mixed = (log_prior.exp().unsqueeze(-1) * p).sum(-2)
    torch.testing.assert_close(mixed.sum(-1), torch.ones_like(mixed[..., 0]))
    nll = -mixed.log().gather(-1, x.unsqueeze(-1)).squeeze(-1)
    return nll if reduction == "none" else getattr(nll, reduction)()


def problem(lead: tuple[int, ...], K: int = 3, E: int = 2, O: int = 5, bias: bool = True) -> Any:  # noqa: E741
    g = torch.Generator().manual_seed(K)
    shapes = [(*lead, K, E), (E, O), (*lead, K), (O,)]
    latent, V, prior, b = (torch.randn(shape, dtype=F64, generator=g) for shape in shapes)
    inputs = [latent, V, prior.log_softmax(-1), b if bias else None]
    for t in inputs:
        if t is not None:
            t.requires_grad_()
    return inputs[0], inputs[1], torch.randint(O, lead, generator=g), inputs[2], inputs[3]


def gradients(nll: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    first = torch.autograd.grad(nll.square().sum(), inputs, create_graph=True)
    curved = sum(g.pow(3).sum() for g in first)
    return [*first, *torch.autograd.grad(curved, inputs)]


@pytest.mark.parametrize(
    ("reduction", "lead", "K", "chunk_size"), table(REDUCTIONS, [(7,), (3, 2)], (1, 3), (1, 7, 99))
)
def test_it_is_the_full_computation(
    reduction: str, lead: tuple[int, ...], K: int, chunk_size: int
) -> None:
    """In value, first and second derivatives; and first derivatives of the fast path."""
    given = problem(lead, K)
    inputs = [t for t in given if t.requires_grad]
    ours = mixture_nll(*given, chunk_size=chunk_size, reduction=reduction)
    full = full_nll(*given, reduction=reduction)
    torch.testing.assert_close(ours, full)
    torch.testing.assert_close(
        torch.autograd.grad(ours.sum(), inputs, retain_graph=True),
        torch.autograd.grad(full.sum(), inputs, retain_graph=True),
    )
    torch.testing.assert_close(gradients(ours, inputs), gradients(full, inputs))


@pytest.mark.parametrize(("bias", "reduction"), [(True, "mean"), (False, "sum"), (True, "none")])
def test_gradcheck(bias: bool, reduction: str) -> None:
    latent, V, x, prior, b = problem((3,), K=2, O=3, bias=bias)

    def f(latent: Tensor, V: Tensor, prior: Tensor, *b: Tensor) -> Tensor:
        return mixture_nll(latent, V, x, prior, *b, chunk_size=4, reduction=reduction)

    inputs = (latent, V, prior, *([b] if bias else []))
    assert torch.autograd.gradcheck(f, inputs)
    if reduction == "mean":  # the others have the same second derivatives
        assert torch.autograd.gradgradcheck(f, inputs)


@pytest.mark.parametrize("frozen", [(0,), (1,), (3,), (4,), (0, 1, 3), (0, 1, 3, 4)])
def test_some_inputs_frozen_and_backward_twice(frozen: tuple[int, ...]) -> None:
    given = problem((6,))
    for k in frozen:
        given[k].requires_grad_(False)
    inputs = [t for t in given if t.requires_grad]
    ours, full = mixture_nll(*given, reduction="mean"), full_nll(*given, reduction="mean")
    assert ours.requires_grad == bool(inputs)
    if inputs:
        expected = torch.autograd.grad(full, inputs)
        for _ in range(2):
            found = torch.autograd.grad(ours, inputs, retain_graph=True)
            torch.testing.assert_close(found, expected)


def test_improbable_words_have_finite_nll() -> None:
    """In log space: a probability of 1e-200 in float32, where the textbook has log 0."""
    latent, V = torch.tensor([[[1.0], [0.9]]], requires_grad=True), torch.tensor([[0.0, 500.0]])
    prior = torch.tensor([[0.0, -900.0]])
    nll = mixture_nll(latent, V, torch.tensor([0]), prior, reduction="mean")
    torch.testing.assert_close(nll.detach(), torch.tensor(500.0))
    nll.backward()
    assert latent.grad is not None
    assert latent.grad.isfinite().all()


class Largest(TorchDispatchMode):
    """The size of the largest tensor that any operation returns."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if isinstance(t, Tensor):
                self.size = max(self.size, t.untyped_storage().nbytes() // t.element_size())
        return out


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_it_never_holds_all_logits(reduction: str) -> None:
    n, K, E, O = 60, 4, 8, 96  # noqa: E741
    given = [t if t is None else t.detach() for t in problem((n,), K, E, O)]
    given[0].requires_grad_()
    given[1].requires_grad_()
    with Largest() as largest:
        mixture_nll(*given, chunk_size=16, reduction=reduction).sum().backward()
    assert largest.size <= max(n * K * E, 2 * 16 * O) < n * O < n * K * O


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"log_prior": torch.zeros(4, 2)}, r"expected latent \(..., K, E\)"),
        ({"x": torch.zeros(3, dtype=torch.int64)}, r"expected latent \(..., K, E\)"),
        ({"x": torch.full((4,), 5)}, "one of the classes 0"),
        ({"x": torch.zeros(4)}, "integer class numbers"),
        ({"V": torch.zeros(2, 5)}, "float64"),
        ({"chunk_size": 0}, "chunk_size must be a whole number of rows, 1 or more, got 0"),
        ({"reduction": "max"}, "reduction must be"),
    ],
)
def test_what_is_refused(change: dict[str, Any], message: str) -> None:
    names = ("latent", "V", "x", "log_prior", "bias")
    given = dict(zip(names, problem((4,)), strict=True)) | {"reduction": "mean"} | change
    with pytest.raises(NoisinError, match=message):
        mixture_nll(**given)
