"""Stochastic RNNs: a training step that runs all its steps in time at once, over one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.timing import Comparison, Rival, compare
from noisin import noise
from noisin.data import Batch
from noisin.likelihoods import Bernoulli
from noisin.models.latent import SRNN, VRNN, LatentModel

N, NOTES = 8, 88
LENGTHS = 100, 600
SIZES = {"hidden_size": 200, "z_size": 32, "mlp_size": 128}


MODELS: dict[type[LatentModel], str] = {SRNN: "gru", VRNN: "lstm"}  # and their cells


def compare_latent(
    lengths: tuple[int, ...] = LENGTHS, budget: float = 15.0, **sizes: int
) -> Iterator[Comparison]:
    """One comparison per model and length of the sequences."""
    for kind, cell in MODELS.items():
        options = {**SIZES, **sizes, "cell": cell}
        for T in lengths:
            rivals = {
                "one by one": step(one_by_one(kind), T, options),
                "at once": step(kind, T, options),
            }
            yield compare(f"{kind.__name__}, {T} steps of {N} sequences", rivals, budget)


def one_by_one(kind: type[LatentModel]) -> type[LatentModel]:
    """The model that records every operation of every step, as those without a chain do."""
    return type("OneByOne", (kind,), {"steps": LatentModel.steps})


def step(kind: type[LatentModel], T: int, options: dict[str, Any]) -> Rival:
    """The loss of a batch of music, and all its gradients."""
    torch.manual_seed(0)
    model = kind(NOTES, Bernoulli(), noise=noise.Gaussian(0.5), **options)
    x = (torch.rand(T + 1, N, NOTES) < 0.05).float()
    batch, leaves = Batch(x[:-1], x[1:]), list(model.parameters())
    return lambda: torch.autograd.grad(model.loss(batch).mean, leaves)
