"""Encoders: map the inputs of a batch to those of the first layer, ``(T, N, F)``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from noisin._util import arguments, checks, torch_state
from noisin.errors import InvalidValue
from noisin.regularizers.sequences import WordDropout


class Words(nn.Embedding):
    """An embedding of word ids ``(T, N)`` that validates its input.

    Args:
        args, kwargs: those of ``torch.nn.Embedding``.
        dropout: the dropout of word types, or None.

    >>> Words(10, 4)(torch.tensor([[1], [2]])).shape
    torch.Size([2, 1, 4])
    """

    def __init__(self, *args: Any, dropout: WordDropout | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.dropout = dropout

    def forward(self, input: Tensor) -> Tensor:
        """The embeddings of word ids."""
        self._check(input)
        x = super().forward(input)
        return x if self.dropout is None else self.dropout(x, input, self.num_embeddings)

    def _check(self, x: Tensor) -> None:
        checks.require_tensors("LanguageModel", x=x)
        if x.dim() != 2 or x.numel() == 0 or x.dtype not in (torch.int64, torch.int32):
            raise InvalidValue(
                f"LanguageModel: expected word ids x, a non-empty integer tensor (T, N), got "
                f"{tuple(x.shape)} of {x.dtype}. Time comes first; for one sequence use "
                f"x.unsqueeze(1)."
            )
        if x.device.type == "cpu" and torch_state.values_known(x):
            low, high = (int(value) for value in x.aminmax())
            if low < 0 or high >= self.num_embeddings:
                raise InvalidValue(
                    f"LanguageModel: word ids must lie in 0 ... {self.num_embeddings - 1}, got "
                    f"{low} ... {high}. Encode the text with the vocabulary of the model."
                )


class Values(nn.Module):
    """Passes values ``(T, N, size)`` through, in the floating-point dtype of the model.

    >>> Values(3)(torch.ones(5, 2, 3, dtype=torch.uint8)).dtype
    torch.float32
    """

    _like: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = arguments.whole("Values: size", size)
        self.register_buffer("_like", torch.empty(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """The values in the dtype of the model."""
        checks.require_numbers("Values", x=x)
        if x.dim() != 3 or x.shape[-1] != self.size or x.numel() == 0:
            raise InvalidValue(
                f"Values: expected a non-empty tensor (T, N, {self.size}), got {tuple(x.shape)}. "
                f"Time comes first."
            )
        return x.to(self._like.dtype)

    def extra_repr(self) -> str:
        """The number of values per step."""
        return str(self.size)
