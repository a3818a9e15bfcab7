"""How cost grows: seconds per token against T, N, H, layers, K and vocabulary.

Each curve is one comparison, all its points interleaved, noisin's and torch's alike. The exponent
is the slope of log seconds over log size: 0 for a cost per token that does not depend on the size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import linear_regression

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import noisin
from benchmarks.rivals import GAMMA, Problem, Size
from benchmarks.timing import Comparison, Rival, Spread, compare
from noisin import likelihoods, noise, objective

BASE = Size("LSTM", 256, 20)
SIZES: Mapping[str, Sequence[int]] = {
    "T": (35, 70, 140, 280, 500, 1000),
    "N": (5, 10, 20, 40, 80, 160),
    "H": (64, 128, 256, 512, 1024),
    "layers": (1, 2, 3, 4),
    "K": (1, 2, 4, 8, 16),
    "vocabulary": (1_000, 3_000, 10_000, 33_278),
}
Point = tuple[Rival, Rival | None, int]  # ours, torch's, and the number of tokens


def compare_growth(
    sizes: Mapping[str, Sequence[int]] = SIZES, base: Size = BASE, budget: float = 10.0
) -> Iterator[Comparison]:
    """Two comparisons per curve, noisin's and torch's, in seconds per token."""
    for name, values in sizes.items():
        points = {value: POINTS[name](base, value) for value in values}
        ours = {f"noisin {value}": point[0] for value, point in points.items()}
        theirs = {f"torch {v}": point[1] for v, point in points.items() if point[1] is not None}
        measured = compare(name, ours | theirs, budget)
        for who in ("noisin", "torch"):
            rounds = {
                str(value): [t / tokens for t in measured.rounds[f"{who} {value}"]]
                for value, (_, _, tokens) in points.items()
                if f"{who} {value}" in measured.rounds
            }
            if rounds:
                case = f"growth with {name}, {who}"
                yield Comparison(case, rounds, "s/token", measured.noise)


def exponent(curve: Comparison) -> Spread:
    """The fitted exponent in each round: median and quartiles.

    >>> exponent(Comparison("square", {"1": [2.0], "2": [8.0], "4": [32.0]}))
    Spread(low=2.0, median=2.0, high=2.0)
    """
    sizes = [math.log(int(size)) for size in curve.rounds]
    turns = zip(*curve.rounds.values(), strict=True)
    return Spread.of([linear_regression(sizes, list(map(math.log, turn))).slope for turn in turns])


def layer(base: Size, name: str, value: int) -> Point:
    """One layer, with another T, N or H."""
    size = replace(base, **{name: value})
    problem = Problem(size)
    return problem.noisy("auto"), problem.torch(), size.T * size.N


def layers(base: Size, value: int) -> Point:
    """A stack of several layers."""
    x = torch.randn(base.T, base.N, base.H)
    ours = noisin.LSTM(base.H, base.H, value, noise=noise.Gaussian(GAMMA))
    theirs = nn.LSTM(base.H, base.H, value)

    def run(rnn: nn.Module) -> Rival:
        return lambda: torch.autograd.grad(rnn(x)[0].sum(), list(rnn.parameters()))

    return run(ours), run(theirs), base.T * base.N


def samples(base: Size, value: int) -> Point:
    """K noise samples of the objective, folded into the batch."""
    rnn = noisin.LSTM(base.H, base.H, noise=noise.Gaussian(GAMMA))
    x = torch.randn(base.T, base.N, base.H)
    batch = objective.Window(x, target=x)

    def run() -> object:
        estimate = objective.estimate(rnn, batch, value, likelihoods.Gaussian())
        return torch.autograd.grad(estimate.bound, list(rnn.parameters()))

    return run, None, base.T * base.N


def vocabulary(base: Size, value: int) -> Point:
    """The prediction of the next word and its loss."""
    n = base.T * base.N
    z = torch.randn(n, base.H, requires_grad=True)
    weight = torch.randn(value, base.H).div_(10).requires_grad_()
    x = torch.randint(value, (n,))

    def gradients(loss: Callable[[], Tensor]) -> Rival:
        return lambda: torch.autograd.grad(loss(), [z, weight])

    ours = gradients(lambda: noisin.linear_nll(z, weight.t(), x, reduction="mean"))
    theirs = gradients(lambda: F.cross_entropy(z @ weight.t(), x))
    return ours, theirs, n


POINTS: Mapping[str, Callable[[Size, int], Point]] = {
    "T": lambda base, value: layer(base, "T", value),
    "N": lambda base, value: layer(base, "N", value),
    "H": lambda base, value: layer(base, "H", value),
    "layers": layers,
    "K": samples,
    "vocabulary": vocabulary,
}
