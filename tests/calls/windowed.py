"""The calls of the cells that see a window: constructors, single steps and sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import noisin
from noisin import regularizers
from tests.calls.call import Call
from tests.calls.modules import F, H, N, states, step, x

CELLS: dict[str, dict[str, Callable[[], Any]]] = {
    "HighwayCell": {"depth": lambda: 2},
    "UpdateDropoutLSTMCell": {"p": lambda: 0.5, "locked_update": lambda: True},
    "UpdateDropoutGRUCell": {"p": lambda: 0.5, "locked_update": lambda: False},
    "MelisLSTMCell": {"gates": lambda: "capped"},
    "MogrifierLSTMCell": {"rounds": lambda: 2, "rank": lambda: 1},
    "LayerNormLSTMCell": {"scope": lambda: "gate", "eps": lambda: 1e-5},
    "LayerNormGRUCell": {"scope": lambda: "all", "eps": lambda: 1e-5},
    "BatchNormLSTMCell": {"t_max": lambda: 2, "momentum": lambda: 0.1, "eps": lambda: 1e-5},
}
SETTINGS: dict[str, Callable[[], Any]] = {
    "input_size": lambda: F,
    "hidden_size": lambda: H,
    "p_h": lambda: 0.5,
    "locked": lambda: True,
    "generator": torch.Generator,
}
LARGE = ("input_size", "hidden_size", "depth", "t_max", "rounds", "rank")


def _calls() -> list[Call]:
    """Of each cell its constructor; of one with and one without a memory all others."""
    found = [
        Call(f"{name}(...)", _constructed(name), {**SETTINGS, **more}, patient=LARGE)
        for name, more in CELLS.items()
    ]
    for name, state in (
        ("HighwayCell", lambda: torch.zeros(N, H)),
        ("MelisLSTMCell", states(N, H)),
    ):
        make = getattr(regularizers, name)
        found += [
            Call(name, lambda m=make, **a: m(F, H)(**a), {"x": step, "state": state}),
            Call(
                f"unroll {name}",
                lambda m=make, **a: noisin.unroll(m(F, H, p_h=0.5), **a),
                {"x": x, "state": state},
            ),
        ]
    return found


def _constructed(name: str) -> Callable[..., Any]:
    def run(**a: Any) -> Any:
        cell = getattr(regularizers, name)(**a)
        return cell(torch.zeros(2, min(cell.input_size, 10**6)))

    return run


CALLS = _calls()
