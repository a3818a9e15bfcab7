"""Counts: a Poisson likelihood over an LSTM, on hourly bike rentals.

The data is ``bike-sharing/hour.csv`` in the folder that NOISIN_DATA names; without it, counts of
the same kind are made up. The LSTM sees the hour of the day and the last count, and predicts the
next: ``log rate = s = z @ V``. Training days are few, so that noise has something to do.
"""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path

import torch
from torch import Tensor, nn

import noisin
from noisin import likelihoods, noise

HIDDEN, DAYS, TRAIN_DAYS = 64, 240, 24


def made_up_counts(generator: torch.Generator) -> Tensor:
    """Two rush hours a day, and days that are better or worse than others."""
    hour = torch.arange(24.0)
    rush = torch.exp(-((hour - 8) ** 2) / 6) + torch.exp(-((hour - 18) ** 2) / 10) + 0.05
    level = (0.5 * torch.randn(DAYS, 1, generator=generator)).exp()
    return torch.poisson(100 * level * rush, generator=generator)


def load() -> tuple[str, Tensor]:
    """Counts by day and hour, (DAYS, 24), with a name for where they are from."""
    path = Path(os.environ.get("NOISIN_DATA", ".")) / "bike-sharing" / "hour.csv"
    if not path.exists():
        return "made-up counts", made_up_counts(torch.Generator().manual_seed(1111))
    days: dict[str, list[float]] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            days.setdefault(row["dteday"], []).append(float(row["cnt"]))
    complete = [counts for counts in days.values() if len(counts) == 24]
    return "bike rentals", torch.tensor(complete[:DAYS])


class Model(nn.Module):
    def __init__(self, law: noise.Noise | None) -> None:
        super().__init__()
        self.rnn = noisin.LSTM(25, HIDDEN, noise=law)
        self.V = nn.Linear(HIDDEN, 1)
        nn.init.constant_(self.V.bias, math.log(100))

    def forward(self, days: Tensor) -> Tensor:
        """The log rate of hours 1 to 23 of each day, (23, N), given all hours before."""
        past = days.t()[:-1].add(1).log().unsqueeze(-1)
        hours = torch.eye(24)[1:].unsqueeze(1).expand(-1, len(days), -1)
        z, _ = self.rnn(torch.cat([past, hours], -1))
        return self.V(z).squeeze(-1)


def main(num_epochs: int = 150) -> dict[str, float]:
    torch.set_num_threads(1)
    source, counts = load()
    train, valid, test = counts[:TRAIN_DAYS], counts[TRAIN_DAYS:120], counts[120:]
    likelihood = likelihoods.Poisson()
    print(f"{source}: {len(train)} days to learn from, {len(test)} to predict; nats per hour")
    results = {}
    for name, law in {"no noise": None, "Gaussian, gamma 0.5": noise.Gaussian(0.5)}.items():
        torch.manual_seed(1111)
        model = Model(law)
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        best = (math.inf, math.inf)
        for _ in range(num_epochs):
            model.train()
            loss = likelihood.nll(s=model(train), x=train.t()[1:]).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            model.eval()
            with torch.no_grad():
                now = tuple(
                    likelihood.nll(s=model(days), x=days.t()[1:]).mean().item()
                    for days in (valid, test)
                )
            best = min(best, now)
        results[name] = best[1]
        print(f"  {name:20} test {best[1]:.2f} at the best validation epoch")
    return results


if __name__ == "__main__":
    main()
