"""The categorical likelihood of a linear prediction, without storing all logits at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from noisin._util import arguments, checks, torch_state
from noisin.errors import InvalidValue
from noisin.likelihoods import Categorical
from noisin.likelihoods._chunked import Prediction

Reduction = Literal["none", "sum", "mean"]


def linear_nll(
    z: Tensor,
    V: Tensor,
    x: Tensor,
    bias: Tensor | None = None,
    chunk_size: int = 256,
    reduction: Reduction = "none",
) -> Tensor:
    """``Categorical().nll(s=z @ V + bias, x=x)`` without storing all of s at once.

    With a large vocabulary, s is the largest tensor of a language model. Here only ``chunk_size``
    rows of it exist at a time. Values and derivatives, of any order, are those of the full
    computation.

    A reduced nll is faster than the full computation: the weight of each row is known, so that its
    gradient is computed together with its logits. Without reduction the logits are computed again
    for the gradient.

    Args:
        z: hidden states, ``(..., H)``.
        V: prediction matrix, ``(H, O)``; with tied weights, ``embedding.weight.t()``.
        x: class numbers, ``(...)``.
        bias: added to every row of s, ``(O,)``.
        chunk_size: rows of s to compute at a time.
        reduction: ``"none"`` for the nll of each x, ``"sum"`` or ``"mean"`` over all of them.

    >>> z, V = torch.eye(3), torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    >>> linear_nll(z, V, torch.tensor([0, 0, 0]), chunk_size=2)
    tensor([0.1269, 0.6931, 1.3133])
    >>> linear_nll(z, V, torch.tensor([0, 0, 0]), reduction="mean")
    tensor(0.7111)
    """
    _check_linear(z, V, x, bias, chunk_size, reduction)
    shape, z, x = x.shape, z.reshape(-1, V.shape[0]), x.reshape(-1)
    logits = z.detach().new_zeros(()).expand(len(x), V.shape[1])  # in shape and dtype alone
    Categorical()._check(logits, x)
    x = x.long()
    if composes():
        nll = _composed(z, V, bias, x, chunk_size, reduction)
    else:
        z, V, bias = as_autocast(z, V, bias)
        apply: Callable[..., Tensor] = _LinearNLL.apply
        nll = apply(z, V, bias, x, chunk_size, reduction, torch.is_grad_enabled())
    return nll.reshape(shape) if reduction == "none" else nll


class _LinearNLL(Function):
    """By chunks of s: ``Prediction`` for values and first derivatives, ``_composed`` for others.

    The gradients of a reduced loss are computed along with it, and of few rows those with respect
    to s; the first backward pass uses them. A second one through the same graph computes them
    again.
    """

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        V: Tensor,
        bias: Tensor | None,
        x: Tensor,
        chunk_size: int,
        reduction: Reduction,
        differentiable: bool,
    ) -> Tensor:
        ctx.save_for_backward(z, V, bias, x)
        ctx.options = chunk_size, reduction
        ctx.gradients = ctx.errors = None
        prediction, needed = Prediction(z, V, x, bias, chunk_size), ctx.needs_input_grad[:3]
        differentiable = differentiable and any(needed)
        if reduction == "none":
            if not differentiable or not prediction.few:
                return prediction.nll()
            nll, ctx.errors = prediction.nll_and_errors()
            return nll
        if differentiable and len(z):
            weight = weight_of_rows(z.new_ones((), dtype=prediction.dtype), len(z), reduction)
            nll, ctx.gradients = prediction.nll_and_gradients(lambda rows, _: weight[rows], needed)
        else:
            nll = prediction.nll()
        return reduced(nll, reduction)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        z, V, bias, x = ctx.saved_tensors
        chunk_size, reduction = ctx.options
        needed = ctx.needs_input_grad[:3]
        gradients, ctx.gradients = ctx.gradients, None
        errors, ctx.errors = ctx.errors, None
        if (
            torch.is_grad_enabled()
            or torch_state.transforming()
            or torch_state.batched_by_autograd(grad)
        ):
            gradients = _composed_gradients(grad, needed, z, V, bias, x, chunk_size, reduction)
        elif gradients is None:
            weight = weight_of_rows(grad, len(z), reduction)
            prediction = Prediction(z, V, x, bias, chunk_size)
            if errors is None:
                gradients = prediction.nll_and_gradients(lambda rows, _: weight[rows], needed)[1]
            else:
                gradients = prediction.gradients(errors, weight, needed)
        else:
            for gradient in gradients:
                if gradient is not None:
                    gradient.mul_(grad)
        return *gradients, None, None, None, None


def weight_of_rows(grad: Tensor, n: int, reduction: Reduction) -> Tensor:
    """The gradient with respect to the nll of each of n rows, given that of the result."""
    return grad.div(max(n, 1)).expand(n) if reduction == "mean" else grad.expand(n)


def reduced(nll: Tensor, reduction: Reduction) -> Tensor:
    """The nll of each row, their sum or their mean."""
    return nll if reduction == "none" else nll.sum() if reduction == "sum" else nll.mean()


def _composed(
    z: Tensor,
    V: Tensor,
    bias: Tensor | None,
    x: Tensor,
    chunk_size: int,
    reduction: Reduction,
) -> Tensor:
    """The same with torch's differentiable operations; each chunk of s is computed twice."""

    def nll(z: Tensor, x: Tensor) -> Tensor:
        s = z @ V if bias is None else torch.addmm(bias, z, V)
        return Categorical().nll(s=s, x=x)

    recompute = partial(checkpoint, nll, use_reentrant=False, preserve_rng_state=False)
    chunks = map(
        nll if torch_state.transforming() else recompute,  # torch.func cannot recompute
        torch.split(z, chunk_size),
        torch.split(x, chunk_size),
    )
    return reduced(torch.cat(list(chunks)), reduction)


def _composed_gradients(
    grad: Tensor, needed: Sequence[bool], z: Tensor, V: Tensor, bias: Tensor | None, *rest: Any
) -> tuple[Tensor | None, ...]:
    """Gradients that can be differentiated in turn."""
    with torch.enable_grad():
        # Separate views, because the derivatives are partial: z may itself depend on V.
        z, V, bias = z.view_as(z), V.view_as(V), None if bias is None else bias.view_as(bias)
        nll = _composed(z, V, bias, *rest)
    wanted = [t for t, need in zip((z, V, bias), needed, strict=True) if need and t is not None]
    found = iter(torch.autograd.grad(nll, wanted, grad, create_graph=torch.is_grad_enabled()))
    return tuple(next(found) if need else None for need in needed)


def as_autocast(z: Tensor, V: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Convert to the dtype that autocast uses for products; it does not convert float64."""

    def cast(t: Tensor) -> Tensor:
        dtype = torch_state.autocast_dtype(t)
        return t if dtype is None else t.to(dtype)

    return cast(z), cast(V), None if bias is None else cast(bias)


def composes() -> bool:
    """Whether torch needs to see single operations, which our Function would hide."""
    return (
        torch_state.compiling()
        or torch_state.transforming()
        or torch_state.differentiating_forward()
    )


def _check_linear(
    z: Tensor, V: Tensor, x: Tensor, bias: Tensor | None, chunk_size: int, reduction: Reduction
) -> None:
    where = "linear_nll"
    tensors = {"z": z, "V": V, "x": x} | ({} if bias is None else {"bias": bias})
    checks.require_tensors(where, **tensors)
    if (
        V.dim() != 2
        or z.shape != (*x.shape, V.shape[0])
        or (bias is not None and bias.shape != V.shape[1:])
    ):
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        raise InvalidValue(
            f"{where}: got the shapes {shapes}; expected z (..., H), V (H, O), x (...) and bias "
            "(O,). For an nn.Linear or nn.Embedding, pass weight.t() as V."
        )
    checks.require_real(where, z=z, V=V, **({} if bias is None else {"bias": bias}))
    checks.require_one_kind(where, z=z, V=V, bias=bias)
    arguments.whole(
        f"{where}: chunk_size",
        chunk_size,
        what="a whole number of rows",
        advice="The default is 256.",
    )
    checks.one_of(f"{where}: reduction", reduction, ("none", "sum", "mean"))
