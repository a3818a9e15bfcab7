"""Calls of stochastic RNNs, their bounds, and the autoregressive head."""

from __future__ import annotations

from typing import Any

import torch

from noisin import likelihoods, models, noise
from noisin.data import Batch
from noisin.models import latent
from noisin.training import predictors
from tests.calls.call import Call

T, N, F, Z = 3, 2, 3, 2


def frames() -> torch.Tensor:
    return torch.ones(T, N, F)


def vrnn() -> latent.VRNN:
    return latent.VRNN(F, likelihoods.Bernoulli(), hidden_size=4, z_size=Z, mlp_size=4)


def _built(kind: Any) -> Any:
    return lambda **a: kind(**a).loss(Batch(torch.ones(T, N, 4), frames())).mean


def _bound(x: Any, target: Any, scored: Any, eta: Any) -> Any:
    return vrnn().bound(Batch(x, target, scored), eta=eta).kl


def _particles(x: Any, scored: Any, **a: Any) -> Any:
    return latent.particle_bound(vrnn(), Batch(x, frames(), scored), **a)[0]


def _evaluated(kind: Any) -> Any:
    return lambda **a: kind(**a)(Batch(frames(), frames()))[0]


SIZES = {
    "size": lambda: F,
    "likelihood": likelihoods.Bernoulli,
    "input_size": lambda: 4,
    "hidden_size": lambda: 4,
    "num_layers": lambda: 2,
    "z_size": lambda: Z,
    "mlp_size": lambda: 4,
    "cell": lambda: "gru",
    "head": lambda: models.Dense,
    "dropout": lambda: models.Dropouts(0.1),
    "noise": lambda: noise.Gaussian(0.5),
    "mode": lambda: "additive",
    "feedback": lambda: False,
    "noisy_layers": lambda: "last",
    "share": lambda: "step",
    "site": lambda: "read",
    "generator": torch.Generator,
}
OWN: dict[Any, dict[str, Any]] = {
    latent.STORN: {},
    latent.VRNN: {"res_q": lambda: True},
    latent.SRNN: {"res_q": lambda: True, "smoothing": lambda: False},
    latent.IndependentSRNN: {},
    latent.ZForcing: {"auxiliary": lambda: 0.1, "backward": lambda: 0.0},
}
CALLS = [
    *(Call(f"{kind.__name__}(...)", _built(kind), SIZES | own) for kind, own in OWN.items()),
    Call(
        "LatentModel.bound",
        _bound,
        {
            "x": frames,
            "target": frames,
            "scored": lambda: torch.ones(T, N, dtype=torch.bool),
            "eta": lambda: torch.zeros(T, N, Z),
        },
    ),
    Call(
        "particle_bound",
        _particles,
        {
            "x": frames,
            "scored": lambda: torch.ones(T, N, dtype=torch.bool),
            "K": lambda: 2,
            "threshold": lambda: 0.5,
            "eta": lambda: torch.zeros(T, 2 * N, Z),
        },
    ),
    *(
        Call(kind.__name__, _evaluated(kind), {"model": vrnn, "K": lambda: 2})
        for kind in (predictors.ELBO, predictors.IWAE)
    ),
    Call(
        "FIVO",
        _evaluated(predictors.FIVO),
        {"model": vrnn, "K": lambda: 2, "threshold": lambda: 0.5},
    ),
    Call(
        "Autoregressive(...)",
        models.Autoregressive,
        {
            "in_features": lambda: 4,
            "out_features": lambda: F,
            "likelihood": likelihoods.Bernoulli,
            "bias": lambda: torch.zeros(F),
            "hidden": lambda: 5,
            "generator": torch.Generator,
        },
    ),
]
