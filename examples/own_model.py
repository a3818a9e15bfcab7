"""Your own model on your own arrays: trained, resumed, scored and reported by noisin.

A model is an ``nn.Module`` with ``loss`` and ``log_prob``; a task is an object with ``unit`` and
``batches``. Run it twice: the second time it continues where the first one ended.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import noisin
from noisin import likelihoods, noise, tasks, training
from noisin.data import Batch
from noisin.models import Loss


class Counts(nn.Module):
    """Predicts how many events the next hour brings."""

    def __init__(self, hidden_size: int = 16) -> None:
        super().__init__()
        self.hidden_size = hidden_size  # what the record of a run knows the model by
        self.rnn = noisin.GRU(1, hidden_size, noise=noise.Gaussian(0.3))
        self.rate = nn.Linear(hidden_size, 1)

    def log_prob(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        z, state = self.rnn(batch.x.log1p(), state)
        return -likelihoods.Poisson().nll(s=self.rate(z), x=batch.target).squeeze(-1), state

    def loss(self, batch: Batch, state: Any = None) -> Loss:
        log_p, state = self.log_prob(batch, state)
        return Loss(-log_p.mean(), batch.count, state=state)


class Hours:
    """Days of hourly counts: five weeks to learn from, one each to choose and to test by."""

    unit = tasks.NATS_PER_STEP

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        day = 5 + 4 * torch.sin(torch.arange(24 * 7 * 7) * torch.pi / 12)
        counts = torch.poisson(day, torch.Generator().manual_seed(seed)).view(7, -1, 1, 1)
        self.weeks = {"train": counts[:5], "valid": counts[5:6], "test": counts[6:]}

    def batches(self, split: str, *, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        for k, week in enumerate(self.weeks[split][start:], start):
            yield Batch(week[:-1], week[1:], start=k, stop=k + 1, carries=k > 0)


def main(out: str = "runs/own-model", epochs: int = 10) -> training.RunRecord:
    torch.manual_seed(1111)
    settings = training.TrainConfig(optimizer="adamw", lr=0.01, lr_decay=1.1, epochs=epochs)
    record = training.Trainer(settings, out).fit(Counts(), Hours())
    best = record.summary["best"]
    print(f"test: {best['test']['nats']:.3f} nats per hour, after epoch {best['epoch']}")
    return record


if __name__ == "__main__":
    main(*sys.argv[1:2])
