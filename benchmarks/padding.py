"""A training step without the padding of its sequences, over one with it.

``pieces of unequal length``
    music: almost half of a batch is padding.
``parts of nearly equal length``
    a series that is cut for training: there is so little padding that it should be computed.
"""

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
    """One comparison per cell with and without noise, and likewise of nearly equal parts."""
    for cell in "lstm", "gru":
        for name, law in LAWS.items():
            title = f"pieces of unequal length, {cell.upper()} {H}{name}"
            yield compare(title, rivals(two_layers(cell, H, law), pieces(T, T // 10)), budget)
    for name, law in LAWS.items():
        title = f"parts of nearly equal length, LSTM {H}{name}"
        yield compare(title, rivals(two_layers("lstm", H, law), pieces(T, T - 1)), budget)


def rivals(model: SequenceModel, batch: Batch) -> dict[str, Rival]:
    """The same steps with all rows, and with what the layers choose."""
    whole = replace(batch, padded=False)
    return {"with padding": step(model, whole), "without": step(model, batch)}


def pieces(T: int, shortest: int) -> Batch:
    """Random notes in pieces of so many to T frames: of a tenth to T, 45 % is padding."""
    x = (torch.rand(T + 1, N, NOTES, generator=Generator().manual_seed(0)) < 0.05).float()
    lengths = torch.linspace(max(1, shortest), T, N).long()
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
        with kernels.everywhere("c"):
            return torch.autograd.grad(model.loss(batch).mean, leaves)

    return run
