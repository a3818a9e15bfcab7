"""A linear prediction and its categorical likelihood, without ever holding all logits."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from noisin import checks
from noisin.errors import InvalidValue
from noisin.likelihoods import Categorical


def linear_nll(
    z: Tensor, V: Tensor, x: Tensor, bias: Tensor | None = None, chunk_size: int = 256
) -> Tensor:
    """``Categorical().nll(s=z @ V + bias, x=x)`` without ever holding all of s.

    A vocabulary makes s the largest tensor of a language model. Here ``chunk_size`` rows of it
    exist at a time: each chunk is computed, dropped, and computed again for its gradient.
    Values and derivatives, of any order, are those of the full computation.

    Args:
        z: hidden states, ``(..., H)``.
        V: prediction matrix, ``(H, O)``; with tied weights, ``embedding.weight.t()``.
        x: class numbers, ``(...)``.
        bias: added to every row of s, ``(O,)``.
        chunk_size: rows of s to hold at a time.

    >>> z, V = torch.eye(3), torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    >>> linear_nll(z, V, torch.tensor([0, 0, 0]), chunk_size=2)
    tensor([0.1269, 0.6931, 1.3133])
    """
    _check_linear(z, V, x, bias, chunk_size)

    def nll(z: Tensor, x: Tensor) -> Tensor:
        s = z @ V if bias is None else torch.addmm(bias, z, V)
        return Categorical().nll(s=s, x=x)

    recompute = partial(checkpoint, nll, use_reentrant=False, preserve_rng_state=False)
    chunks = map(
        nll if transforming() else recompute,  # torch.func cannot recompute
        torch.split(z.reshape(-1, V.shape[0]), chunk_size),
        torch.split(x.reshape(-1), chunk_size),
    )
    return torch.cat(list(chunks)).reshape(x.shape)


def transforming() -> bool:
    """Whether torch.func is at work."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._functorch.peek_interpreter_stack() is not None


def _check_linear(z: Tensor, V: Tensor, x: Tensor, bias: Tensor | None, chunk_size: int) -> None:
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
            "(O,). Of an nn.Linear or nn.Embedding, pass weight.t() as V."
        )
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1:
        raise InvalidValue(
            f"{where}: chunk_size must be a whole number of rows, 1 or more, got {chunk_size!r}. "
            "The default is 256."
        )
