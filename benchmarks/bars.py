"""The bars: how slow, or how large, noisin may be against its rivals, on two threads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.timing import Comparison, Spread


@dataclass(frozen=True)
class Bar:
    """In ``case``, what ``rival`` takes may be at most ``limit`` of what ``over`` takes."""

    case: str
    rival: str
    over: str
    limit: float

    def __str__(self) -> str:
        return f"{self.case}: {self.rival} over {self.over}"


@dataclass(frozen=True)
class Verdict:
    """A bar and the ratio that was measured."""

    bar: Bar
    ratio: Spread

    @property
    def met(self) -> bool:
        """Whether the median is within the limit."""
        return self.ratio.median <= self.bar.limit

    @property
    def excess(self) -> float:
        """By what share of the limit the median exceeds it; negative where it is met."""
        return self.ratio.median / self.bar.limit - 1

    def __str__(self) -> str:
        return "met" if self.met else f"missed by {100 * self.excess:.1f} %"


def layer_bars(case: str, c: float, eager: float) -> list[Bar]:
    """One layer, forward and backward, over torch's without noise: C kernel and eager."""
    return [Bar(case, "c", "torch", c), Bar(case, "eager", "torch", eager)]


def sampling_bars(limit: float, *laws: str) -> list[Bar]:
    """A draw of the noise, as a share of a layer."""
    return [Bar("sampling for LSTM 650 × 80", law, "torch", limit) for law in laws]


BARS = [
    *layer_bars("LSTM 650 × 80", 0.97, 1.02),
    *layer_bars("LSTM 650 × 20", 0.90, 1.00),
    *layer_bars("LSTM 1500 × 80", 1.00, 1.05),
    *layer_bars("LSTM 1500 × 20", 0.90, 0.92),
    *layer_bars("LSTM 256 × 80", 0.80, 1.05),
    *layer_bars("LSTM 256 × 20", 1.00, 1.30),
    Bar("GRU 650 × 80", "c", "torch", 1.00),
    Bar("Elman 256 × 80", "c", "torch", 0.95),
    Bar("LSTM 650 × 80", "c", "loop", 0.68),
    *sampling_bars(0.04, "Gaussian", "Bernoulli", "Gumbel", "Logistic"),
    *sampling_bars(0.10, "Laplace", "Gamma(2)"),
    *sampling_bars(0.20, "Beta(2, 1.07)", "Chi-square(1.2)"),
    Bar("evaluation of LSTM 650 × 80", "noisin", "torch", 1.02),
    Bar("evaluation of GRU 650 × 80", "noisin", "torch", 1.02),
    Bar("evaluation of Elman 650 × 80", "noisin", "torch", 1.02),
    Bar("training step, vocabulary 10,000", "c", "plain", 0.90),
    Bar("training step, vocabulary 33,278", "c", "plain", 0.85),
    Bar("peak memory, vocabulary 10,000", "c", "plain", 0.66),
    Bar("peak memory, vocabulary 33,278", "c", "plain", 0.47),
    Bar("peak memory over the steps", "after 2,000", "after 200", 1.02),
]


def judge(comparisons: Iterable[Comparison], bars: Iterable[Bar] = BARS) -> list[Verdict]:
    """The verdicts on all bars whose rivals were compared: without a compiler there is no C."""
    measured = {comparison.case: comparison for comparison in comparisons}
    return [
        Verdict(bar, measured[bar.case].ratio(bar.rival, bar.over))
        for bar in bars
        if bar.case in measured and {bar.rival, bar.over} <= measured[bar.case].rounds.keys()
    ]
