"""The table of cases that the contracts of the noisy RNNs are tested over."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import noisin
from noisin import noise
from noisin.recurrent.stack import NoisyStack
from tests.pairwise import table

# name: (our class, torch's class or None where torch has none, extra arguments of ours)
KINDS: dict[str, tuple[type[NoisyStack], type[nn.RNNBase] | None, dict[str, Any]]] = {
    "tanh": (noisin.RNN, nn.RNN, {}),
    "relu": (noisin.RNN, nn.RNN, {"nonlinearity": "relu"}),
    "sigmoid": (noisin.RNN, None, {"nonlinearity": "sigmoid"}),
    "lstm": (noisin.LSTM, nn.LSTM, {}),
    "lstm-proj": (noisin.LSTM, nn.LSTM, {"proj_size": 2}),
    "gru-read": (noisin.GRU, nn.GRU, {"site": "read"}),
    "gru-state": (noisin.GRU, nn.GRU, {"site": "state"}),
}
MODES = ("multiplicative", "additive")
LAYOUTS = ("time-major", "batch-first", "unbatched", "packed", "packed-unsorted")

F, H, L = 3, 4, 2  # input features, hidden units, layers: all different


@dataclass(frozen=True)
class Case:
    """One configuration of a noisy RNN."""

    kind: str
    mode: str = "multiplicative"
    feedback: bool = True
    noisy_layers: str = "all"
    bidirectional: bool = False
    bias: bool = True
    num_layers: int = L

    def __str__(self) -> str:
        words = [self.kind, self.mode[:4], "fed" if self.feedback else "unfed", self.noisy_layers]
        words += ["bi"] if self.bidirectional else []
        words += [] if self.bias else ["nobias"]
        return "-".join(words)

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def output_size(self) -> int:
        return KINDS[self.kind][2].get("proj_size", H)

    @property
    def torch_arguments(self) -> dict[str, Any]:
        extra = {k: v for k, v in KINDS[self.kind][2].items() if k != "site"}
        return {
            "num_layers": self.num_layers,
            "bias": self.bias,
            "bidirectional": self.bidirectional,
            **extra,
        }

    def make(self, law: Any = noise.Gaussian(0.5), **kwargs: Any) -> NoisyStack:  # noqa: B008
        cls, _, extra = KINDS[self.kind]
        arguments = {
            **self.torch_arguments,
            **extra,
            "noise": law,
            "mode": self.mode,
            "feedback": self.feedback,
            "noisy_layers": self.noisy_layers,
            "dtype": torch.float64,
            **kwargs,
        }
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*carry.*")
            return cls(F, H, **arguments)

    def make_torch(self, **kwargs: Any) -> nn.RNNBase:
        cls = KINDS[self.kind][1]
        assert cls is not None
        return cls(F, H, **{**self.torch_arguments, "dtype": torch.float64, **kwargs})

    def eps(self, T: int, N: int | None) -> torch.Tensor:
        batch = () if N is None else (N,)
        shape = (self.num_layers * self.directions, T, *batch, self.output_size)
        return 0.5 * torch.randn(shape, dtype=torch.float64)

    def state(self, N: int | None) -> Any:
        batch = () if N is None else (N,)
        layers = self.num_layers * self.directions
        h = torch.randn(layers, *batch, self.output_size, dtype=torch.float64)
        if not self.kind.startswith("lstm"):
            return h
        return h, torch.randn(layers, *batch, H, dtype=torch.float64)


AXES = (tuple(KINDS), MODES, (True, False), ("all", "last"), (False, True))
ALL = [Case(*row) for row in table(*AXES)]  # all pairs, or all: see tests/pairwise.py
_FEEDBACK_AND_DIRECTION = table(tuple(KINDS), (True, False), (False, True))
PLAIN = [Case(kind, bidirectional=bi) for kind, fed, bi in _FEEDBACK_AND_DIRECTION if fed]
UNFED = [
    Case(kind, feedback=False, bidirectional=bi)
    for kind, fed, bi in _FEEDBACK_AND_DIRECTION
    if not fed
]
