"""The calls of random weights and of dropout of words."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import noisin
from noisin.models import Dropouts, LanguageModel
from noisin.regularizers import SynapticNoise, WeightDrop, WeightNoise
from tests.calls.call import Call
from tests.calls.modules import F, H, N, states, step, x

WORDS = 7


def _model(**settings: Any) -> Any:
    return LanguageModel(WORDS, hidden_size=H, **settings)(torch.zeros(3, 2, dtype=torch.int64))


NOISE = {"std": lambda: 0.1, "mode": lambda: "additive"}

CALLS = [
    Call(
        "WeightDrop",
        lambda **a: _model(weight_drop=WeightDrop(**a)),
        {"p": lambda: 0.5, "inputs": lambda: True},
    ),
    Call(
        "WeightNoise",
        lambda **a: _model(weight_noise=WeightNoise(**a)),
        {**NOISE, "per": lambda: "sequence"},
    ),
    Call(
        "LanguageModel(...) with random weights",
        _model,
        {"weight_drop": lambda: WeightDrop(0.5), "weight_noise": lambda: WeightNoise(0.1)},
    ),
    Call(
        "Dropouts of words",
        lambda **a: _model(dropout=Dropouts(**a)),
        {"words": lambda: 0.5, "words_shared": lambda: True},
    ),
    Call(
        "SynapticNoise(...)",
        lambda **a: noisin.unroll(SynapticNoise(**a), x()),
        {"cell": lambda: nn.LSTMCell(F, H), **NOISE, "generator": torch.Generator},
    ),
    Call(
        "SynapticNoise",
        lambda **a: SynapticNoise(nn.LSTMCell(F, H), 0.1)(**a),
        {"x": step, "state": states(N, H)},
    ),
]
