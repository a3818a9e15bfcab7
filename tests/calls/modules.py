"""The calls of noise-injected modules: stacks, cells, unroll, conversion, regularizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import noisin
from noisin import noise, regularizers
from noisin.analysis import check_unbiased
from noisin.models import Dropout
from tests.calls.call import Call

T, N, F, H = 5, 2, 3, 4


def law() -> noise.Gaussian:
    return noise.Gaussian(0.5)


def x() -> torch.Tensor:
    return torch.linspace(-1, 1, T * N * F).reshape(T, N, F)


def step() -> torch.Tensor:
    return x()[0]


def states(*shape: int) -> Callable[[], Any]:
    return lambda: (torch.zeros(shape), torch.ones(shape))


def packed() -> PackedSequence:
    return pack_padded_sequence(x(), torch.tensor([3, 5]), enforce_sorted=False)


def _run(rnn: Any) -> Any:
    """A new module on an input of its own sizes, so that what it was made with is used."""
    size = min(rnn.input_size, 10**6)
    like = next(rnn.parameters())
    lead = (1,) if isinstance(rnn, nn.RNNCellBase) else (2, 1)
    return rnn(torch.zeros(*lead, size, dtype=like.dtype, device=like.device))


NOISE_SETTINGS = {
    "noise": law,
    "mode": lambda: "additive",
    "feedback": lambda: True,
    "share": lambda: "step",
    "generator": torch.Generator,
}
TORCH_SETTINGS = {
    "input_size": lambda: F,
    "hidden_size": lambda: H,
    "bias": lambda: True,
    "device": lambda: "cpu",
    "dtype": lambda: torch.float32,
}
STACK_SETTINGS = {
    **TORCH_SETTINGS,
    "num_layers": lambda: 2,
    "batch_first": lambda: False,
    "dropout": lambda: 0.1,
    "bidirectional": lambda: False,
}
OURS = {*NOISE_SETTINGS, "noisy_layers", "site"}


def _without_noise(make: Any) -> Any:
    return lambda **a: _run(make(**{k: v for k, v in a.items() if k not in OURS}))


def _positional(make: Any) -> Any:
    return lambda **a: _run(make(*a.values()))


def _constructors() -> list[Call]:
    placed = {**STACK_SETTINGS, **NOISE_SETTINGS, "noisy_layers": lambda: "all"}
    tables: list[tuple[Any, Any, dict[str, Any]]] = [
        (noisin.RNN, nn.RNN, {**placed, "nonlinearity": lambda: "relu"}),
        (noisin.LSTM, nn.LSTM, {**placed, "proj_size": lambda: 2}),
        (noisin.GRU, nn.GRU, {**placed, "site": lambda: "read"}),
        (
            noisin.RNNCell,
            nn.RNNCell,
            {**TORCH_SETTINGS, **NOISE_SETTINGS, "nonlinearity": lambda: "tanh"},
        ),
        (noisin.LSTMCell, nn.LSTMCell, {**TORCH_SETTINGS, **NOISE_SETTINGS}),
        (
            noisin.GRUCell,
            nn.GRUCell,
            {**TORCH_SETTINGS, **NOISE_SETTINGS, "site": lambda: "read"},
        ),
    ]
    calls = [
        Call(
            ours.__name__,
            lambda ours=ours, **a: _run(ours(**a)),
            arguments,
            torch=_without_noise(theirs),
            patient=("num_layers",),
        )
        for ours, theirs, arguments in tables
    ]
    positional = {k: STACK_SETTINGS[k] for k in ("input_size", "hidden_size", "num_layers", "bias")}
    calls.append(
        Call("GRU(*)", _positional(noisin.GRU), positional, _positional(nn.GRU), ("num_layers",))
    )
    return calls


def _stacks() -> list[Call]:
    kinds: list[tuple[str, Any, Any, Any]] = [
        ("RNN", noisin.RNN, nn.RNN, lambda: torch.zeros(2, N, H)),
        ("LSTM", noisin.LSTM, nn.LSTM, states(2, N, H)),
        ("GRU", noisin.GRU, nn.GRU, lambda: torch.zeros(2, N, H)),
        ("RNN sigmoid", _sigmoid, nn.RNN, lambda: torch.zeros(2, N, H)),
    ]
    calls = []
    for name, make, theirs, hx in kinds:

        def run(make: Any, on: bool, feedback: bool = True, **a: Any) -> Any:
            rnn = make(F, H, num_layers=2, noise=law(), feedback=feedback)
            return rnn.train(on)(a.pop("input"), a.pop("hx"), **a)

        def clean(theirs: Any = theirs, eps: Any = None, **a: Any) -> Any:
            return theirs(F, H, num_layers=2)(**a)

        given = {"input": x, "hx": hx}
        eps = {"eps": lambda: torch.zeros(2, T, N, H)}
        calls += [
            Call(f"{name} noisy", lambda make=make, **a: run(make, True, **a), given, torch=clean),
            Call(f"{name} clean", lambda make=make, **a: run(make, False, **a), given, torch=clean),
            Call(
                f"{name} given eps",
                lambda make=make, **a: run(make, False, **a),
                {**given, **eps},
                torch=clean,
            ),
            Call(
                f"{name} without feedback",
                lambda make=make, **a: run(make, True, False, **a),
                given,
                torch=clean,
            ),
        ]

    def sample_eps(input: Any) -> Any:
        return noisin.LSTM(F, H, num_layers=2, noise=law()).sample_eps(input)

    def run_replaced(input: Any, read_mask: Any, weights: Any) -> Any:
        rnn = noisin.LSTM(F, H, num_layers=2, noise=law())
        return rnn(input, read_mask=read_mask, weights=weights)

    def run_packed(input: Any, hx: Any, eps: Any) -> Any:
        return noisin.LSTM(F, H, noise=law())(input, hx, eps=eps)

    calls += [
        Call("LSTM.sample_eps", sample_eps, {"input": x}),
        Call(
            "LSTM with a mask and weights",
            run_replaced,
            {
                "input": x,
                "read_mask": lambda: torch.ones(2, 1, N, H),
                "weights": lambda: {"weight_hh_l0": torch.zeros(4 * H, H)},
            },
            torch=lambda input, **_: nn.LSTM(F, H, num_layers=2)(input),
        ),
        Call(
            "LSTM with factors",
            lambda input, keep, update_mask: noisin.LSTM(F, H, noise=law())(
                input, keep=keep, update_mask=update_mask
            ),
            {
                "input": x,
                "keep": lambda: (0.1, torch.ones(1, 1, N, H)),
                "update_mask": lambda: torch.ones(1, T, N, H),
            },
            torch=lambda input, **_: nn.LSTM(F, H)(input),
        ),
        Call(
            "LSTM packed",
            run_packed,
            {
                "input": packed,
                "hx": states(1, N, H),
                "eps": lambda: torch.zeros(1, T, N, H),
            },
            torch=lambda input, hx, eps: nn.LSTM(F, H)(input, hx),
        ),
    ]
    return calls


def _sigmoid(*args: Any, **kwargs: Any) -> noisin.RNN:
    return noisin.RNN(*args, nonlinearity="sigmoid", **kwargs)


def _cells() -> list[Call]:
    one, two = lambda: torch.zeros(N, H), states(N, H)
    kinds: list[tuple[str, Any, Any]] = [
        ("RNNCell", lambda: noisin.RNNCell(F, H, noise=law()), one),
        ("RNNCell sigmoid", lambda: noisin.RNNCell(F, H, nonlinearity="sigmoid"), one),
        ("LSTMCell", lambda: noisin.LSTMCell(F, H, noise=law()), two),
        ("GRUCell state", lambda: noisin.GRUCell(F, H, noise=law()), one),
        ("GRUCell read", lambda: noisin.GRUCell(F, H, site="read", noise=law()), two),
        ("Noisy", lambda: noisin.Noisy(nn.LSTMCell(F, H), law()), two),
        ("Noisy DropoutLSTMCell", lambda: noisin.Noisy(_dropout(), law()), two),
    ]
    calls = []
    for name, make, state in kinds:
        theirs = _torch_cell(name)
        calls += [
            Call(name, lambda make=make, **a: make()(**a), {"x": step, "state": state}, theirs),
            Call(
                f"{name} in eval",
                lambda make=make, **a: make().eval()(**a),
                {"x": step, "state": state},
                theirs,
            ),
            Call(
                f"{name} given eps",
                lambda make=make, **a: make()(**a),
                {"x": step, "state": state, "eps": lambda: torch.zeros(N, H)},
                theirs,
            ),
            Call(
                f"unroll {name}",
                lambda make=make, **a: noisin.unroll(make(), **a),
                {"x": x, "state": state, "eps": lambda: torch.zeros(T, N, H)},
            ),
            Call(
                f"Unrolled {name}",
                lambda make=make, **a: noisin.Unrolled(make())(**a),
                {"x": x, "state": state},
            ),
        ]
    return calls


def _torch_cell(name: str) -> Any:
    kinds: dict[str, Any] = {"RNNCell": nn.RNNCell, "LSTMCell": nn.LSTMCell}
    kinds |= {"GRUCell state": nn.GRUCell, "Noisy": nn.LSTMCell}
    if name not in kinds:
        return None
    return lambda x, state, eps=None: kinds[name](F, H)(x, state)


def _dropout() -> regularizers.DropoutLSTMCell:
    return regularizers.DropoutLSTMCell(F, H, p_x=0.5, p_h=0.4)


def _wrapped(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **a: noisin.unroll(make(**a), x())


def model() -> nn.Module:
    return nn.ModuleDict({"rnn": nn.LSTM(F, H), "cell": nn.GRUCell(F, H), "V": nn.Linear(H, 2)})


def _converted() -> Any:
    return noisin.convert(nn.ModuleDict({"rnn": nn.LSTM(F, H), "V": nn.Linear(H, 2)}), law())


def _entered(switch: Any) -> Callable[..., None]:
    def run(model: Any) -> None:
        with switch(model):
            pass

    return run


def _convert(**a: Any) -> Any:
    converted = noisin.convert(**a)
    return converted["rnn"](x())


def _wrappers() -> list[Call]:
    conversion = {k: v for k, v in NOISE_SETTINGS.items() if k != "noise"}
    return [
        Call(
            "Noisy(...)",
            _wrapped(noisin.Noisy),
            {"cell": lambda: nn.LSTMCell(F, H), **NOISE_SETTINGS},
        ),
        Call(
            "unroll",
            noisin.unroll,
            {"cell": lambda: nn.LSTMCell(F, H), "x": x, "state": states(N, H)},
        ),
        Call(
            "set_dropout_law",
            regularizers.set_dropout_law,
            {"model": lambda: Dropout(0.5), "law": lambda: noise.Laplace},
        ),
        Call(
            "Zoneout(...)",
            _wrapped(regularizers.Zoneout),
            {
                "cell": lambda: nn.LSTMCell(F, H),
                "p_h": lambda: 0.1,
                "p_c": lambda: 0.2,
                "generator": torch.Generator,
            },
        ),
        Call(
            "Unrolled(...)",
            lambda cell: noisin.Unrolled(cell)(x()),
            {"cell": lambda: nn.LSTMCell(F, H)},
        ),
        Call(
            "Zoneout",
            lambda **a: regularizers.Zoneout(nn.LSTMCell(F, H), 0.1, 0.2)(**a),
            {"x": step, "state": states(N, H)},
        ),
        Call(
            "Zoneout in eval",
            lambda **a: regularizers.Zoneout(nn.GRUCell(F, H), 0.1).eval()(**a),
            {"x": step, "state": lambda: torch.zeros(N, H)},
        ),
        Call(
            "ZoneoutMasks(...)",
            lambda **a: regularizers.ZoneoutMasks(**a)(x(), H),
            {"p_h": lambda: 0.1, "p_c": lambda: 0.2, "generator": torch.Generator},
        ),
        Call(
            "ZoneoutMasks",
            lambda **a: regularizers.ZoneoutMasks(0.1, 0.2)(**a),
            {"like": x, "size": lambda: H},
        ),
        Call(
            "DropoutLSTMCell(...)",
            lambda **a: _run(regularizers.DropoutLSTMCell(**a)),
            {
                **TORCH_SETTINGS,
                "p_x": lambda: 0.5,
                "p_h": lambda: 0.4,
                "site": lambda: "after",
                "shared": lambda: False,
                "generator": torch.Generator,
            },
            torch=lambda **a: nn.LSTMCell(**{k: a[k] for k in TORCH_SETTINGS}),
        ),
        Call(
            "DropoutLSTMCell",
            lambda **a: _dropout()(**a),
            {"x": step, "state": states(N, H), "masks": lambda: _dropout().sample_masks(step())},
        ),
        Call(
            "DropoutLSTMCell in eval",
            lambda **a: _dropout().eval()(**a),
            {"x": step, "state": states(N, H)},
            torch=lambda x, state: nn.LSTMCell(F, H)(x, state),
        ),
        Call("sample_masks", lambda x: _dropout().sample_masks(x), {"x": step}),
        Call(
            "Masks",
            lambda **a: _dropout()(step(), masks=regularizers.Masks(**a)),
            {"x": lambda: torch.ones(N, 4, H), "h": lambda: torch.ones(N, 4, H)},
        ),
        Call(
            "convert",
            _convert,
            {
                "model": lambda: nn.ModuleDict({"rnn": nn.GRU(F, H), "V": nn.Linear(H, 2)}),
                "noise": law,
                **conversion,
                "where": lambda: "rnn*",
                "noisy_layers": lambda: "all",
                "site": lambda: "read",
            },
        ),
        Call("convert cells", noisin.convert, {"model": model, "noise": law}),
        Call("revert", noisin.revert, {"model": _converted}),
        Call("set_noise", noisin.set_noise, {"model": _converted, "noise": law}),
        Call("noise_on", _entered(noisin.noise_on), {"model": _converted}),
        Call("noise_off", _entered(noisin.noise_off), {"model": _converted}),
        Call(
            "check_unbiased",
            check_unbiased,
            {
                "module": lambda: noisin.RNN(F, 2, noise=law()),
                "x": lambda: x()[:2, 0],
                "rows": lambda: 1000,
                "false_alarm": lambda: 1e-6,
                "kind": lambda: "rnn",
            },
            torch=lambda x, **_: nn.RNN(F, 2)(x),
        ),
    ]


CALLS = [*_constructors(), *_stacks(), *_cells(), *_wrappers()]
