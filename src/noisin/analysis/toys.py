"""Small models that the claims are checked on."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from noisin.likelihoods import Likelihood

T, N, X, H, O = 5, 4, 3, 4, 6  # noqa: E741 - steps, rows, inputs, hidden units, outputs


def inputs(rows: int = N) -> Tensor:
    """Random inputs, ``(T, rows, X)``."""
    return torch.randn(T, rows, X, dtype=torch.float64)


class Model(nn.Module):
    """An RNN and a prediction matrix, in float64."""

    def __init__(self, likelihood: Likelihood, rnn: nn.Module, scale: float = 2.0) -> None:
        super().__init__()
        self.likelihood, self.rnn = likelihood, rnn.double()
        self.V = nn.Parameter(torch.randn(H, O, dtype=torch.float64) * scale / math.sqrt(H))
        with torch.no_grad():
            for weight in rnn.parameters():
                weight.mul_(2)  # torch's small initial weights hide every nonlinearity

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """``s = z @ V``."""
        z, state = self.rnn(x, state)
        return z @ self.V, state

    def clean(self, x: Tensor) -> Tensor:
        """The states h without noise."""
        h: Tensor = self.rnn.eval()(x)[0].detach()
        self.rnn.train()
        return h


class Affine(nn.Module):
    """``h = (1 - g) h_prev + g v`` with gates that read the input alone, as minGRU's do."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(X, H), nn.Linear(X, H)

    def forward(self, x: Tensor, state: Tensor | None) -> Tensor:
        """One step."""
        g = self.gate(x).sigmoid()
        new: Tensor = g * self.value(x)
        return new if state is None else new + (1 - g) * state
