"""The table of noises: means and variances of the scaled noise, and that they have no bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from noisin import noise
from noisin.analysis import rows
from noisin.analysis.rows import ClaimRow, Pair
from noisin.analysis.toys import STRONG, H, X, draws, fixed, inputs
from noisin.recurrent.modules import RNN

# Var(eps) by gamma, as the paper prints it, and the gammas that are tried.
VARIANCES: dict[str, tuple[Callable[[float], float], tuple[float, ...]]] = {
    "gaussian": (lambda gamma: gamma**2, (0.45, 1.1)),
    "bernoulli": (lambda gamma: (1 - gamma) / gamma, (0.8, 0.45)),
    "gamma": (lambda gamma: gamma**2, (0.45, 1.1)),
    "gumbel": (lambda gamma: gamma**2, (0.45, 1.1)),
    "laplace": (lambda gamma: gamma**2, (0.45, 1.1)),
    "logistic": (lambda gamma: gamma**2, (0.45, 1.1)),
    "beta": (lambda gamma: gamma, (0.2, 1.2)),
    "chi-square": (lambda gamma: gamma, (0.2, 1.2)),
}
# The gammas for which the paper's variance is a hundred.
OF_VARIANCE_100 = {
    **dict.fromkeys(("gaussian", "gamma", "gumbel", "laplace", "logistic"), 10.0),
    "bernoulli": 1 / 101,
    "beta": 100.0,
    "chi-square": 100.0,
}


def noise_table() -> Iterator[ClaimRow]:
    """Mean zero and the variance that the table gives to gamma."""
    like, n = torch.empty((), dtype=torch.float64), draws(200_000)
    means: list[Pair] = []
    variances: list[Pair] = []
    for name, (variance, gammas) in VARIANCES.items():
        for gamma in gammas:
            eps = noise.FAMILIES[name](gamma).sample((n,), like=like)
            means.append(rows.mean(eps))
            variances.append(rows.mean(eps.square() / variance(gamma)))
    place = "Table of noises, Sec. 3"
    yield rows.equal("noise-mean", f"every noise is centred (worst of {len(means)})", place, means)
    claim = f"Var(eps) at gamma, over the table's formula (worst of {len(variances)})"
    yield rows.equal("noise-variance", claim, place, variances, 1)


def unbounded_variance() -> Iterator[ClaimRow]:
    """Bernoulli and Beta variables have variances of at most ¼; scaled, no noise has a bound."""
    place = "Controlling the noise level, Sec. 3"
    like, n, alpha = torch.empty((), dtype=torch.float64), draws(100_000), 2.0
    unscaled = []
    for gamma in (0.05, 0.5, 0.95):
        eps = noise.Bernoulli(gamma).sample((n,), like=like)
        unscaled.append(gamma * (1 + eps))
    for gamma in (0.1, 1.0, 10.0):
        eps = noise.Beta(gamma, alpha=alpha).sample((n,), like=like)
        total = alpha + gamma
        unscaled.append(eps / (total * math.sqrt((total + 1) / alpha)) + alpha / total)
    found = [rows.mean((eta - eta.mean()).square()) for eta in unscaled]
    claim = "Var(eta) of unscaled Bernoulli and Beta noise (largest of 6)"
    yield rows.at_most("variance-bounded", claim, place, found, 0.25)

    x = inputs(1).expand(-1, draws(20_000), X)
    ratios = []
    for name, gamma in OF_VARIANCE_100.items():
        rnn = fixed(RNN(X, H, noise=noise.FAMILIES[name](gamma), **STRONG), 2)
        with torch.no_grad():
            z, h = rnn(x)[0], rnn.eval()(x[:, :1])[0]
        ratios.append(rows.mean((z / h - 1).square().flatten() / 100))
    claim = f"Var(z)/h² at the gamma for 100, over 100: no bound (worst of {len(ratios)})"
    yield rows.equal("variance-unbounded", claim, place, ratios, 1)
