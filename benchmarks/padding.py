"""Pieces of unequal length: a training step without their padding, over one with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Generator

from benchmarks.timing import Comparison, Rival, compare
from noisin import noise
from noisin.data import Batch
from noisin.likelihoods import Bernoulli
from noisin.models import Dense, SequenceModel, Values
from noisin.models.layers import layer
from noisin.recurrent import kernels
from noisin.recurrent.injection import Injection

NOTES, N, H, T = 88, 8, 280, 800
LAWS = {"": None, ", with noise": noise.Gaussian(0.5)}


def compare_padding(T: int = T, H: int = H, budget: float = 8.0) -> Iterator[Comparison]:
    """One comparison per cell, with and without noise."""
    for cell in "lstm", "gru":
        for name, law in LAWS.items():
            model = two_layers(cell, H, law)
            batch = pieces(T)
            rivals = {
                "with padding": step(model, replace(batch, padded=False)),
                "without": step(model, batch),
            }
            yield compare(f"pieces of unequal length, {cell.upper()} {H}{name}", rivals, budget)


def pieces(T: int) -> Batch:
    """Random notes in pieces of a tenth of T to T frames: 45 % of the batch is padding."""
    x = (torch.rand(T + 1, N, NOTES, generator=Generator().manual_seed(0)) < 0.05).float()
    lengths = torch.linspace(max(1, T // 10), T, N).long()
    return Batch(x[:-1], x[1:], torch.arange(T)[:, None] < lengths, padded=True)


def two_layers(cell: str, H: int, law: noise.Noise | None) -> SequenceModel:
    """The model of the presets of music."""
    torch.manual_seed(0)
    layers = [layer(cell, size, H, injection=Injection(law)) for size in (NOTES, H)]
    return SequenceModel(Values(NOTES), layers, Dense(H, NOTES, Bernoulli()))


def step(model: SequenceModel, batch: Batch) -> Rival:
    """The loss of a batch and its gradients, by the kernels that the trainer chooses."""
    leaves = list(model.parameters())

    def run() -> object:
        with kernels.everywhere():
            return torch.autograd.grad(model.loss(batch).mean, leaves)

    return run
