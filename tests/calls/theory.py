"""The calls of the objective, the analysis and the functional reference."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import noisin
from noisin import analysis, likelihoods, noise, objective
from noisin.tuning import TuningTrial
from tests.calls.call import Call
from tests.calls.modules import F, H, N, T, law, states, x

GAUSSIAN = likelihoods.Gaussian


def rnn() -> nn.Module:
    return noisin.LSTM(F, H, noise=law())


def target() -> Tensor:
    return torch.zeros(T, N, H)


def batch() -> objective.Window:
    return objective.Window(x(), target(), states(1, N, H)())


def _estimate(model: Any, K: Any, likelihood: Any, **window: Any) -> Any:
    e = objective.estimate(model, objective.Window(**window), K, likelihood)
    return e.bound, e.bound_stderr, e.marginal, e.marginal_stderr


def _decomposition(model: Any, K: Any, likelihood: Any, **window: Any) -> Any:
    return analysis.risk_decomposition(model, objective.Window(**window), K, likelihood)


def _ensemble() -> objective.Ensemble:
    return objective.predict(rnn(), x(), 2, likelihood=GAUSSIAN())


def _ensemble_of(s: Any, likelihood: Any, state: Any, x: Any) -> Any:
    ensemble = objective.Ensemble(s, likelihood, state)
    return ensemble.arithmetic(x), ensemble.geometric(x), ensemble.log_normaliser()


WINDOW: dict[str, Any] = {"x": x, "target": target, "state": states(1, N, H)}
TORCH: dict[str, Any] = {
    "torch": lambda x, state, **_: nn.LSTM(F, H)(x, state)
}  # what the model itself says
MODEL: dict[str, Any] = {"model": rnn, "likelihood": GAUSSIAN}
V = {"V": lambda: torch.ones(H, 3), "h": lambda: torch.ones(2, H), "bias": lambda: torch.ones(3)}


def _train(trial: TuningTrial) -> float:
    return (trial.std - 0.5) ** 2


def _tuning() -> list[Call]:
    return [
        Call(
            "tune",
            noisin.tune,
            {
                "train": lambda: _train,
                "budget": lambda: 30,
                "epochs": lambda: 5,
                "around": lambda: 0.5,
                "lr": lambda: None,
            },
        )
    ]


def _objective() -> list[Call]:
    cell = {"cell": lambda: noisin.RNNCell(F, H, noise=law())}
    return [
        Call("estimate", _estimate, {**MODEL, **WINDOW, "K": lambda: 2}, **TORCH),
        Call(
            "estimate(batch)",
            lambda model, batch, likelihood: objective.estimate(model, batch, 2, likelihood),
            {**MODEL, "batch": batch},
        ),
        Call(
            "predict",
            objective.predict,
            {**MODEL, "x": x, "state": states(1, N, H), "K": lambda: 2},
            **TORCH,
        ),
        Call("arithmetic", lambda x: _ensemble().arithmetic(x), {"x": target}),
        Call("geometric", lambda x: _ensemble().geometric(x), {"x": target}),
        Call(
            "Ensemble",
            _ensemble_of,
            {
                "s": lambda: torch.zeros(2, T, N, H),
                "likelihood": GAUSSIAN,
                "state": lambda: None,
                "x": target,
            },
        ),
        Call(
            "transition_log_density",
            objective.transition_log_density,
            {
                "z": lambda: torch.ones(N, H),
                "f": lambda: torch.ones(N, H),
                "noise": law,
                "mode": lambda: "multiplicative",
            },
        ),
        Call(
            "log_joint",
            objective.log_joint,
            {
                **cell,
                "V": lambda: nn.Linear(H, 3),
                "x": x,
                "target": lambda: torch.zeros(T, N, 3),
                "z": lambda: torch.ones(T, N, H),
                "likelihood": GAUSSIAN,
            },
            torch=lambda x, **_: nn.RNNCell(F, H)(x[0]),
        ),
        Call(
            "likelihood_of",
            objective.likelihood_of,
            {"model": rnn, "likelihood": GAUSSIAN},
        ),
    ]


def _analysis() -> list[Call]:
    return [
        Call("risk_decomposition", _decomposition, {**MODEL, **WINDOW, "K": lambda: 2}, **TORCH),
        Call(
            "expected_kl",
            analysis.expected_kl,
            {**MODEL, "x": x, "state": states(1, N, H), "K": lambda: 2},
            **TORCH,
        ),
        Call(
            "printed_regularizer",
            analysis.printed_regularizer,
            {**MODEL, "x": x, "state": states(1, N, H), "K": lambda: 2},
            **TORCH,
        ),
        Call(
            "fisher_penalty",
            analysis.fisher_penalty,
            {
                **MODEL,
                "x": x,
                "state": states(1, N, H),
                "draws": lambda: 2,
                "generator": torch.Generator,
            },
            patient=("draws",),
            **TORCH,
        ),
        Call(
            "explicit_regularizer",
            analysis.explicit_regularizer,
            {
                **V,
                "likelihood": likelihoods.Poisson,
                "noise": lambda: noise.Gumbel(0.5),
                "mode": lambda: "multiplicative",
                "K": lambda: 2,
                "generator": torch.Generator,
            },
            patient=("K",),
        ),
        Call(
            "Penalty",
            lambda **a: analysis.Penalty(**a)(torch.ones(2, H), torch.ones(H, 3)),
            {
                "likelihood": likelihoods.Categorical,
                "noise": law,
                "mode": lambda: "additive",
                "chunk_size": lambda: 2,
            },
        ),
        *(
            Call(f"Penalty {type(lik).__name__}", analysis.Penalty(lik, law()), V)
            for lik in (likelihoods.Categorical(), likelihoods.Bernoulli())
        ),
        Call("Measured.of", analysis.Measured.of, {"samples": lambda: torch.ones(3)}),
    ]


CALLS = [*_objective(), *_analysis(), *_tuning()]
