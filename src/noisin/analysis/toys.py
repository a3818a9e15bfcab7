"""Small models on which the claims are checked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from noisin import likelihoods
from noisin.likelihoods import Likelihood
from noisin.recurrent.functional import Mode

T, N, X, H, O = 5, 4, 3, 4, 6  # noqa: E741 - steps, rows, inputs, hidden units, outputs

# The placement of noise that is strongly unbiased.
STRONG: dict[str, Any] = {"feedback": False, "noisy_layers": "last"}
MODES: tuple[Mode, ...] = ("multiplicative", "additive")
LIKELIHOODS: tuple[Likelihood, ...] = (
    likelihoods.Bernoulli(),
    likelihoods.Gaussian(0.5),
    likelihoods.Poisson(),
    likelihoods.Categorical(),
)

_effort: ContextVar[float] = ContextVar("noisin_effort", default=1.0)


@contextmanager
def effort(share: float) -> Iterator[None]:
    """Draw only this share of the samples inside the context: only standard errors grow."""
    token = _effort.set(share)
    try:
        yield
    finally:
        _effort.reset(token)


def draws(n: int) -> int:
    """How many samples to draw in place of the n of full effort."""
    return max(math.ceil(n * _effort.get()), 2)


def generator(seed: int = 0) -> torch.Generator:
    """The generator of what does not depend on the seed of the table: weights, inputs, targets."""
    return torch.Generator().manual_seed(1111 + seed)


def inputs(rows: int = N) -> Tensor:
    """The inputs, ``(T, rows, X)``."""
    return torch.randn(T, rows, X, dtype=torch.float64, generator=generator(1))


def fixed(module: nn.Module, scale: float) -> nn.Module:
    """A module in float64 with weights that no seed changes, uniform within ± scale/√H.

    Torch's own scale is one; larger weights make the nonlinearities matter.
    """
    g = generator(2)
    with torch.no_grad():
        for weight in module.double().parameters():
            weight.uniform_(-scale / math.sqrt(H), scale / math.sqrt(H), generator=g)
    return module


class Model(nn.Module):
    """An RNN and a prediction matrix, in float64."""

    def __init__(self, likelihood: Likelihood, rnn: nn.RNNBase, scale: float = 2.0) -> None:
        super().__init__()
        self.likelihood, self.rnn = likelihood, fixed(rnn, 2)
        V = torch.randn(rnn.hidden_size, O, dtype=torch.float64, generator=generator(3))
        self.V = nn.Parameter(V * scale / math.sqrt(rnn.hidden_size))

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """``s = z @ V``."""
        z, state = self.rnn(x, state)
        return z @ self.V, state

    def clean(self, x: Tensor) -> Tensor:
        """The states h without noise."""
        h: Tensor = self.rnn.eval()(x)[0].detach()
        self.rnn.train()
        return h
