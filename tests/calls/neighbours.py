"""The calls that concern other people's models."""

from __future__ import annotations

from typing import Any

import torch

import noisin
from noisin import noise, objective, testing
from tests.calls.call import Call
from tests.calls.modules import F, H, N, T, x
from tests.calls.theory import rnn


def _forecast(samples: Any, q: Any, target: Any, level: Any) -> Any:
    forecast = objective.Forecast(samples)
    return forecast.quantile(q), forecast.coverage(target, level)


CALLS = [
    Call("replay", noisin.replay, {"model": rnn}),
    Call(
        "forecast",
        objective.forecast,
        {"model": rnn, "fn": lambda: lambda model: model(x())[0], "K": lambda: 2},
        patient=("K",),
    ),
    Call(
        "Forecast",
        _forecast,
        {
            "samples": lambda: torch.ones(4, H),
            "q": lambda: [0.1, 0.9],
            "target": lambda: torch.ones(H),
            "level": lambda: 0.8,
        },
    ),
    Call(
        "check_noise_reaches",
        lambda model, call: testing.check_noise_reaches(model, torch.ones(T, N, F), call=call),
        {"model": rnn, "call": lambda: lambda model, batch: model(batch)[0]},
    ),
    Call(
        "noise.Ramp",
        noise.Ramp,
        {"kind": lambda: "linear", "epochs": lambda: 4, "start": lambda: 0.0, "end": lambda: 1.0},
    ),
]
