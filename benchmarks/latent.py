"""Stochastic RNNs: a training step that runs all its steps in time at once, over one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.timing import Comparison, Rival, compare
from noisin import noise
from noisin.data import Batch
from noisin.likelihoods import Bernoulli
from noisin.models.latent import SRNN, LatentModel

N, NOTES = 8, 88
LENGTHS = 100, 600
SIZES = {"hidden_size": 200, "z_size": 32, "mlp_size": 128}


class OneByOne(SRNN):
    """An SRNN that records every operation of every step, as the models without a chain do."""

    steps = LatentModel.steps


def compare_latent(
    lengths: tuple[int, ...] = LENGTHS, budget: float = 15.0, **sizes: int
) -> Iterator[Comparison]:
    """One comparison per length of the sequences."""
    for T in lengths:
        rivals = {"one by one": step(OneByOne, T, sizes), "at once": step(SRNN, T, sizes)}
        yield compare(f"SRNN, {T} steps of {N} sequences", rivals, budget)


def step(kind: type[SRNN], T: int, sizes: dict[str, int]) -> Rival:
    """The loss of a batch of music, and all its gradients."""
    torch.manual_seed(0)
    options: Any = {**SIZES, **sizes, "cell": "gru", "noise": noise.Gaussian(0.5)}
    model = kind(NOTES, Bernoulli(), **options)
    x = (torch.rand(T + 1, N, NOTES) < 0.05).float()
    batch, leaves = Batch(x[:-1], x[1:]), list(model.parameters())
    return lambda: torch.autograd.grad(model.loss(batch).mean, leaves)
