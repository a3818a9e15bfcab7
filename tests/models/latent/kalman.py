"""A linear-Gaussian state-space model: its exact likelihood, and as a stochastic RNN.

``z_1 ~ N(0, q)``, ``z_t = a z_{t-1} + N(0, q)``, ``x_t = C z_t + N(0, r I)`` with a scalar z.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from noisin.data import Batch
from noisin.likelihoods import Gaussian
from noisin.models import Linear
from noisin.models.latent import DiagonalGaussian, LatentModel, LatentStep

A, Q, R = 0.8, 0.5, 0.3
C = np.array([1.0, -0.6])


def likelihood(x: np.ndarray) -> float:
    """``log p(x)`` of one sequence ``(T, 2)`` by the Kalman filter."""
    return _filter(x)[0]


def filtered(x: np.ndarray) -> tuple[float, float]:
    """The mean and the variance of the last z given a sequence ``(T, 2)``."""
    return _filter(x)[1:]


def _filter(x: np.ndarray) -> tuple[float, float, float]:
    """``log p(x)``, and the law of the last z given x."""
    mean, var, total = 0.0, Q, 0.0
    for t, x_t in enumerate(x):
        if t:
            mean, var = A * mean, A * A * var + Q
        S = var * np.outer(C, C) + R * np.eye(2)
        total += multivariate_normal(mean * C, S).logpdf(x_t)
        gain = var * C @ np.linalg.inv(S)
        mean, var = mean + gain @ (x_t - mean * C), var - var * gain @ C
    return float(total), float(mean), float(var)


def joint_likelihood(x: np.ndarray) -> float:
    """The same by the covariance matrix of all observations."""
    T = len(x)
    lags = np.subtract.outer(np.arange(T), np.arange(T))
    var = np.array([Q * sum(A ** (2 * s) for s in range(t + 1)) for t in range(T)])
    cov = A ** abs(lags) * np.minimum.outer(var, var)
    whole = np.kron(cov, np.outer(C, C)) + R * np.eye(2 * T)
    return float(multivariate_normal(np.zeros(2 * T), whole).logpdf(x.ravel()))


def draw(T: int, N: int, seed: int = 0) -> Tensor:
    random = np.random.RandomState(seed)
    z = np.zeros(N)
    frames = []
    for t in range(T):
        z = (A * z if t else 0) + random.normal(0, Q**0.5, N)
        frames.append(z[:, None] * C + random.normal(0, R**0.5, (N, 2)))
    return torch.tensor(np.array(frames))


class StateSpace(LatentModel):
    """The model with an exact posterior, ``"smoothing"``, or others.

    The posterior is ``p(z_t | z_{t-1}, x_t, ..., x_T)``, that of the next observation alone
    (``"filtering"``), or the prior.
    """

    def __init__(self, posterior: str) -> None:
        super().__init__(2, Gaussian(R), hidden_size=1, z_size=1, mlp_size=1)
        self.posterior = posterior
        self.emission = torch.nn.Sequential()
        V = torch.tensor(C).unsqueeze(0)
        self.head: Any = Linear(V, torch.zeros(2, dtype=torch.float64), Gaussian(R))
        self.double()

    def context(self, batch: Batch, state: Any) -> tuple[tuple[Tensor, ...], Any]:
        """The Gaussian in z_t that is proportional to the density of what is observed from t on.

        Written as ``exp(-½ precision z² + shift z)``: backwards in time, z_{t+1} is integrated out.
        """
        assert batch.scored is None
        own = torch.tensor(C @ C / R), batch.target @ torch.tensor(C) / R
        precision, shift = torch.zeros(()), torch.zeros(batch.x.shape[1], dtype=torch.float64)
        found = []
        for x in reversed(own[1]):
            if self.posterior == "filtering":
                precision, shift = 0 * precision, 0 * shift
            precision, shift = precision + own[0], shift + x
            found.append(torch.stack([precision.expand_as(shift), shift], -1))
            scale = 1 / (1 + Q * precision)
            precision, shift = A * A * precision * scale, A * shift * scale
        return (torch.stack(found[::-1]),), state

    def prior_context(self, x: Tensor, state: Any) -> tuple[tuple[Any, ...], Any]:
        return (x, None), state

    def initial(self, like: Tensor) -> Any:
        return like.new_zeros(len(like), 1)

    def sequence(self) -> Any:
        def step(inputs: Any, before: Any, eta: Tensor) -> Any:
            p = DiagonalGaussian(A * before, torch.full_like(before, Q**0.5))
            q = p
            if self.posterior != "prior" and len(inputs) == 1:
                precision, shift = inputs[0].split(1, -1)
                total = 1 / Q + precision
                q = DiagonalGaussian((p.mean / Q + shift) / total, total.rsqrt())
            z = q.at(eta)
            return LatentStep(z, q, p, z), z

        return step
