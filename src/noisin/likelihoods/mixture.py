"""The likelihood of a mixture of softmaxes, without storing all logits of all experts at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from noisin._util import arguments, checks, torch_state
from noisin.errors import InvalidValue
from noisin.likelihoods import Categorical
from noisin.likelihoods._chunked import Prediction
from noisin.likelihoods.linear import (
    Reduction,
    as_autocast,
    composes,
    linear_nll,
    reduced,
    weight_of_rows,
)


def mixture_nll(
    latent: Tensor,
    V: Tensor,
    x: Tensor,
    log_prior: Tensor,
    bias: Tensor | None = None,
    chunk_size: int = 512,
    reduction: Reduction = "none",
) -> Tensor:
    r"""``-log Σ_k π_k softmax(h_k V + bias)_x``, a mixture of K softmaxes over the same words.

    The mixture is computed in log space from the ``log p_k`` of the experts. Its gradient is that
    of K linear predictions, each weighted by the responsibility ``π_k p_k / Σ_j π_j p_j``:
    so it is computed by the chunks of :func:`~noisin.linear_nll`, with rows of tokens times
    experts. Only ``chunk_size`` of these rows have logits at a time. A reduced nll computes its
    gradient in the same pass.

    Args:
        latent: the hidden states ``h_k`` of the experts, ``(..., K, E)``.
        V: the prediction matrix, ``(E, O)``.
        x: class numbers, ``(...)``.
        log_prior: ``log π``, ``(..., K)``; normalised by the caller.
        bias: added to the logits of all experts, ``(O,)``.
        chunk_size: rows of logits to compute at a time; at least those of one token. With 512,
            the sum of the gradients of V is read and written half as often as with 256.
        reduction: ``"none"`` for the nll of each x, ``"sum"`` or ``"mean"`` over all of them.

    >>> latent, V = torch.tensor([[[2.0], [0.0]]]), torch.tensor([[1.0, 0.0]])
    >>> log_prior = torch.tensor([[0.25, 0.75]]).log()
    >>> mixture_nll(latent, V, torch.tensor([0]), log_prior).exp().reciprocal()
    tensor([0.5952])
    """
    _check_mixture(latent, V, x, log_prior, bias, chunk_size, reduction)
    if reduction == "none" or composes() or not x.numel() or not torch.is_grad_enabled():
        return reduced(_composed(latent, V, x, log_prior, bias, chunk_size), reduction)
    latent, V, bias = as_autocast(latent, V, bias)
    apply: Callable[..., Tensor] = _MixtureNLL.apply
    return apply(latent, V, bias, log_prior, x, chunk_size, reduction)


def _composed(
    latent: Tensor,
    V: Tensor,
    x: Tensor,
    log_prior: Tensor,
    bias: Tensor | None,
    chunk_size: int,
) -> Tensor:
    """The nll of each x, with derivatives of any order; logits are computed again for them."""
    every = x.unsqueeze(-1).expand(log_prior.shape)
    nll = linear_nll(latent, V, every, bias, chunk_size)
    return -(log_prior.to(nll.dtype) - nll).logsumexp(-1)


class _MixtureNLL(Function):
    """A reduced nll whose gradients are computed along with it, and used by a first backward."""

    @staticmethod
    def forward(
        ctx: Any,
        latent: Tensor,
        V: Tensor,
        bias: Tensor | None,
        log_prior: Tensor,
        x: Tensor,
        chunk_size: int,
        reduction: Reduction,
    ) -> Tensor:
        ctx.save_for_backward(latent, V, bias, log_prior, x)
        ctx.options = chunk_size, reduction
        ctx.gradients = None
        needed = ctx.needs_input_grad[:4]
        if not any(needed):
            return reduced(_composed(latent, V, x, log_prior, bias, chunk_size), reduction)
        inputs = latent, V, bias, log_prior
        nll, ctx.gradients = _nll_and_gradients(inputs, x, ctx.options, needed)
        return reduced(nll, reduction)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        saved: Any = ctx.saved_tensors
        inputs, x = saved[:4], saved[4]
        needed = ctx.needs_input_grad[:4]
        gradients, ctx.gradients = ctx.gradients, None
        if (
            torch.is_grad_enabled()
            or torch_state.transforming()
            or torch_state.batched_by_autograd(grad)
        ):
            gradients = _composed_gradients(grad, needed, inputs, x, *ctx.options)
            return *gradients, None, None, None
        if gradients is None:  # a second backward pass
            _, gradients = _nll_and_gradients(inputs, x, ctx.options, needed)
        for gradient in gradients:
            if gradient is not None:
                gradient.mul_(grad)
        return *gradients, None, None, None


class _Experts(Prediction):
    """The predictions of all experts, one row for each token and expert.

    Torch's softmax in place takes fewer passes over s than the steps of a linear prediction, which
    matter more here: the states of the experts are small, and so are the products.
    """

    def exponentiate(self, rows: slice, s: Tensor) -> tuple[Tensor, Tensor]:
        """Replace s by its softmax in place; return ones and the nll of each row."""
        p = torch.softmax(s, 1, out=s).gather(1, self.x[rows, None]).squeeze(1)
        nll = -p.log()
        lost = p < torch.finfo(p.dtype).tiny  # too small for an accurate logarithm
        if lost.any():
            z, x = self.z[rows][lost], self.x[rows][lost]
            nll[lost] = Prediction(z, self.V, x, self.bias, self.chunk_size).nll()
        return torch.ones_like(p), nll


def _nll_and_gradients(
    inputs: Sequence[Any], x: Tensor, options: tuple[int, Reduction], needed: tuple[bool, ...]
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """The nll of each x, and the ``needed`` gradients of the reduced nll."""
    latent, V, bias, log_prior = inputs
    K, (chunk_size, reduction) = log_prior.shape[-1], options
    tokens = max(1, chunk_size // K)
    rows_of_x = x.reshape(-1).long().repeat_interleave(K)
    prediction = _Experts(latent.reshape(-1, V.shape[0]), V, rows_of_x, bias, tokens * K)
    prior = log_prior.reshape(-1, K).to(prediction.dtype)
    nll, d_prior = prior.new_empty(len(prior)), torch.empty_like(prior)
    weight = weight_of_rows(nll.new_ones(()), len(prior), reduction)

    def weigh(rows: slice, nll_of_experts: Tensor) -> Tensor:
        own = slice(rows.start // K, rows.stop // K)
        joint = prior[own] - nll_of_experts.view(-1, K)
        torch.neg(joint.logsumexp(1), out=nll[own])
        torch.mul(joint.softmax(1), weight[own, None], out=d_prior[own])  # of -log π, so far
        return d_prior[own].reshape(-1)

    _, (d_latent, d_V, d_bias) = prediction.nll_and_gradients(weigh, needed[:3])
    return nll, (
        None if d_latent is None else d_latent.view(latent.shape),
        d_V,
        d_bias,
        d_prior.neg_().to(log_prior.dtype).view(log_prior.shape) if needed[3] else None,
    )


def _composed_gradients(
    grad: Tensor,
    needed: Sequence[bool],
    inputs: Sequence[Any],
    x: Tensor,
    chunk_size: int,
    reduction: Reduction,
) -> tuple[Tensor | None, ...]:
    """Gradients that can be differentiated in turn."""
    with torch.enable_grad():
        # Separate views, because the derivatives are partial: latent may itself depend on V.
        views: list[Any] = [None if t is None else t.view_as(t) for t in inputs]
        latent, V, bias, prior = views
        nll = reduced(_composed(latent, V, x, prior, bias, chunk_size), reduction)
    wanted = [t for t, need in zip(views, needed, strict=True) if need]
    found = iter(torch.autograd.grad(nll, wanted, grad, create_graph=torch.is_grad_enabled()))
    return tuple(next(found) if need else None for need in needed)


def _check_mixture(
    latent: Tensor,
    V: Tensor,
    x: Tensor,
    log_prior: Tensor,
    bias: Tensor | None,
    chunk_size: int,
    reduction: Reduction,
) -> None:
    where = "mixture_nll"
    tensors = {"latent": latent, "V": V, "x": x, "log_prior": log_prior}
    tensors |= {} if bias is None else {"bias": bias}
    checks.require_tensors(where, **tensors)
    if (
        V.dim() != 2
        or latent.dim() < 2
        or latent.shape != (*x.shape, latent.shape[-2], V.shape[0])
        or log_prior.shape != latent.shape[:-1]
        or (bias is not None and bias.shape != V.shape[1:])
    ):
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        raise InvalidValue(
            f"{where}: got the shapes {shapes}; expected latent (..., K, E), V (E, O), x (...), "
            f"log_prior (..., K) and bias (O,)."
        )
    checks.require_real(where, latent=latent, V=V, log_prior=log_prior)
    checks.require_one_kind(where, latent=latent, V=V, bias=bias)
    Categorical()._check(V.detach().new_zeros(()).expand(*x.shape, V.shape[1]), x)
    arguments.whole(f"{where}: chunk_size", chunk_size, what="a whole number of rows")
    checks.one_of(f"{where}: reduction", reduction, ("none", "sum", "mean"))
