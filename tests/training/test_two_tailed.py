"""Two-tailed averaging, against a brute force that keeps every iterate."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from noisin.errors import InvalidType
from noisin.tasks import Score
from noisin.training.two_tailed import TwoTailedAverage

PERIODS = (4, 3, 4, 1, 5, 4, 4, 2, 4, 4)  # steps between evaluations; windows vary in length


class Toy:
    """Noisy iterates that approach a minimum and move away; the loss is the distance from it."""

    def __init__(self) -> None:
        self.weight = nn.Parameter(torch.zeros(2, dtype=torch.float64))
        self.path: list[Tensor] = []
        random = torch.Generator().manual_seed(4)
        steps = sum(PERIODS)
        drift = torch.linspace(3, 0, steps // 2, dtype=torch.float64)
        drift = torch.cat([drift, torch.linspace(0, 2, steps - len(drift), dtype=torch.float64)])
        self.noise = torch.randn(steps, 2, generator=random, dtype=torch.float64)
        self.targets = drift[:, None] + self.noise

    def step(self, average: TwoTailedAverage) -> None:
        with torch.no_grad():
            self.weight.copy_(self.targets[len(self.path)])
        self.path.append(self.weight.detach().clone())
        average.update()

    def measure(self) -> Score:
        return Score(float(self.weight.detach().square().sum()), 1)

    def loss_of_last(self, n: int) -> float:
        """The loss of the mean of the last n iterates; infinite for none."""
        return float(torch.stack(self.path[-n:]).mean(0).square().sum())


def test_it_follows_the_rules_of_the_paper() -> None:
    """Lengths and losses of algorithm 1, and the restart of algorithm 2, at every evaluation."""
    toy = Toy()
    average = TwoTailedAverage([toy.weight])
    short = long = 0  # lengths
    seen = set()
    for period in PERIODS:
        for _ in range(period):
            toy.step(average)
        short, long, raw = short + period, long + period, toy.loss_of_last(1)
        losses = toy.loss_of_last(short), toy.loss_of_last(long)
        switched = losses[0] <= losses[1]
        loss = losses[1]
        if switched:
            short, long, loss = 0, short, losses[0]
        found = average.scored(toy.measure, Score(raw, 1))
        assert torch.equal(toy.weight.detach(), toy.path[-1])
        if 1 < long == period and raw <= loss:
            assert found is None
            short = long = 0
            seen.add("restarted")
            continue
        assert found is not None
        assert found.nats == pytest.approx(loss)
        assert average.count == long
        with average.applied():
            torch.testing.assert_close(toy.weight.detach(), torch.stack(toy.path[-long:]).mean(0))
        seen.add("switched" if switched else "kept")
    assert seen == {"restarted", "switched", "kept"}


@pytest.mark.parametrize("stop", [0, 2, 6, 13])
def test_a_saved_one_goes_on_as_if_nothing_had_happened(stop: int) -> None:
    """Stopped between evaluations too, so that the steps since the last one are saved."""

    def results(resumed: bool) -> list[Any]:
        toy, found = Toy(), []
        average = TwoTailedAverage([toy.weight])
        for period in PERIODS:
            for _ in range(period):
                if resumed and len(toy.path) == stop:
                    file = io.BytesIO()
                    torch.save(average.state_dict(), file)
                    file.seek(0)
                    average = TwoTailedAverage([toy.weight])
                    average.load_state_dict(torch.load(file, weights_only=True))
                toy.step(average)
            score = average.scored(toy.measure, toy.measure())
            found.append((score and score.nats, average.count))
        return found

    assert results(resumed=True) == results(resumed=False)


def test_a_state_of_another_kind_is_refused() -> None:
    weight = nn.Parameter(torch.zeros(2))
    message = "TwoTailedAverage: expected a state with count, means, short and since, got {'count'"
    with pytest.raises(InvalidType, match=re.escape(message)):
        TwoTailedAverage([weight]).load_state_dict({"count": 0, "means": []})
