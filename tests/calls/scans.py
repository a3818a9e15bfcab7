"""The calls of scans: the function, the layers and the cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import noisin
from tests.calls.call import Call
from tests.calls.modules import F, H, N, T, law, step, x

CELLS = {"MinGRUCell": noisin.MinGRUCell, "MinLSTMCell": noisin.MinLSTMCell}
LAYERS = {"MinGRU": noisin.MinGRU, "MinLSTM": noisin.MinLSTM}
SIZES: dict[str, Callable[[], Any]] = {
    "input_size": lambda: F,
    "hidden_size": lambda: H,
    "bias": lambda: True,
}
NOISE: dict[str, Callable[[], Any]] = {
    "noise": law,
    "mode": lambda: "multiplicative",
    "site": lambda: "state",
    "share": lambda: "step",
    "generator": torch.Generator,
}


def _states() -> torch.Tensor:
    return torch.full((T, N, H), 0.5)


def _state() -> torch.Tensor:
    return torch.zeros(N, H)


def _run(module: Any) -> Any:
    """A new module on an input of its own size."""
    size = min(getattr(module, "cell", module).input_size, 10**6)
    return module(torch.zeros(2, 1, size) if hasattr(module, "cell") else torch.zeros(1, size))


def _calls() -> list[Call]:
    operands = {"a": _states, "b": _states, "h0": _state, "site": lambda: "state"}
    drawn = {name: NOISE[name] for name in ("noise", "mode", "generator")}
    found = [
        Call("scan", noisin.scan, {**operands, "eps": _states, "mode": lambda: "additive"}),
        Call("scan with noise", noisin.scan, {**operands, **drawn}),
        Call(
            "Scanned(...)",
            lambda **a: noisin.Scanned(**a)(x()),
            {"cell": lambda: noisin.MinGRUCell(F, H), **NOISE},
        ),
        Call(
            "Scanned",
            lambda **a: noisin.Scanned(noisin.MinLSTMCell(F, H), law())(**a),
            {"x": x, "state": _state, "eps": _states},
        ),
    ]
    for name, make in (CELLS | LAYERS).items():
        settings = SIZES | (NOISE if name in LAYERS else {})
        run = _constructed(make)
        found.append(Call(f"{name}(...)", run, settings, patient=("input_size", "hidden_size")))
    for name, cell in CELLS.items():
        run = _constructed(cell, {"input_size": F, "hidden_size": H})
        found.append(Call(name, run, {"x": step, "state": _state}))
    return found


def _constructed(make: Any, sizes: dict[str, int] | None = None) -> Callable[..., Any]:
    """What runs a new module, on an input of its own or, if its sizes are known, on a given one."""
    if sizes is None:
        return lambda **a: _run(make(**a))
    return lambda **a: make(**sizes)(**a)


CALLS = _calls()
