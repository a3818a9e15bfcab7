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


def sampling_bars(limit: float, *laws: str) -> list[Bar]:
    """A draw of the noise, as a share of a layer."""
    return [Bar("sampling for LSTM 650 × 80", law, "torch", limit) for law in laws]


def shape_bars(kind: str, limits: dict[str, float]) -> list[Bar]:
    """Layers of other shapes, over torch's without noise."""
    return [Bar(f"{kind} of LSTM {size}", "c", "torch", limit) for size, limit in limits.items()]


def regularizer_bars(*sizes: str) -> list[Bar]:
    """Regularizers in the kernels, over the noisy layer without them; others, over the loop."""
    names = (
        "weight drop", "Gal", "Gal, a mask for each gate", "recurrent dropout",
        "dropout of updates", "zoneout", "AR and TAR",
    )  # fmt: skip
    steps = {"zoneout": 0.80, "layer norm": 1.00, "highway": 0.80}
    return [
        *(Bar(f"regularized {size}", name, "plain", 1.10) for size in sizes for name in names),
        *(
            Bar(f"step by step, {size}", name, "loop", limit)
            for size in sizes
            for name, limit in steps.items()
        ),
    ]


# One step takes two products and a draw. At 100 rows torch's fused layer needs hardly more than the
# products, and a draw is a twentieth of them.
ONE_STEP = {"650 × 1": 0.50, "650 × 8": 1.15, "650 × 100": 1.40, "650 × 4096": 1.00}
AND_BACK = {"650 × 1": 0.50, "650 × 8": 0.70, "650 × 100": 0.95, "650 × 4096": 1.05}

BARS = [
    *(Bar(f"LSTM {H} × {N}", "c", "torch", 0.95) for H in (256, 650, 1500) for N in (20, 80)),
    *(Bar(f"LSTM 64 × {N}", "c", "torch", 1.05) for N in (20, 80)),
    Bar("GRU 650 × 80", "c", "torch", 1.00),
    Bar("Elman 256 × 80", "c", "torch", 0.95),
    Bar("LSTM 650 × 80", "c", "loop", 0.68),
    Bar("without noise, GRU 200 × 20", "c", "torch", 0.70),
    Bar("without noise, GRU 650 × 80", "c", "torch", 1.00),
    Bar("without noise, GRU 280 × 8, T = 500", "c", "torch", 0.40),
    Bar("without noise, Elman 256 × 80", "c", "torch", 1.00),
    *shape_bars("one step", ONE_STEP),
    *shape_bars("one step and back", AND_BACK),
    *shape_bars("projection", {"650 → 325 × 20": 0.85}),
    *shape_bars("packed sequences", {"650 × 20": 0.60}),
    *shape_bars("both directions", {"650 × 20": 1.15}),
    Bar("samples in strong mode of LSTM 650 × 20", "K = 8", "K = 1", 1.35),
    *regularizer_bars("LSTM 650 × 20", "LSTM 256 × 20"),
    Bar("mixture of 5 softmaxes", "noisin", "products", 1.15),
    Bar("dynamic evaluation of 70 words", "noisin", "products", 1.50),
    *(Bar(f"SRNN, {T} steps of 8 sequences", "at once", "one by one", 0.85) for T in (100, 600)),
    *(Bar(f"VRNN, {T} steps of 8 sequences", "at once", "one by one", 0.70) for T in (100, 600)),
    *(
        Bar(f"pieces of unequal length, {layers}", "without", "with padding", 0.85)
        for layers in ("LSTM 280", "LSTM 280, with noise", "GRU 280", "GRU 280, with noise")
    ),
    *(
        Bar(f"parts of nearly equal length, {layers}", "without", "with padding", 1.05)
        for layers in ("LSTM 280", "LSTM 280, with noise")
    ),
    *sampling_bars(0.04, "Gaussian", "Bernoulli", "Gumbel", "Logistic"),
    *sampling_bars(0.10, "Laplace", "Gamma(2)"),
    *sampling_bars(0.20, "Beta(2, 1.07)", "Chi-square(1.2)"),
    Bar("evaluation of LSTM 650 × 80", "noisin", "torch", 1.02),
    Bar("evaluation of GRU 650 × 80", "noisin", "torch", 1.02),
    Bar("evaluation of Elman 650 × 80", "noisin", "torch", 1.02),
    Bar("training step, vocabulary 10,000", "c", "plain", 0.80),
    Bar("training step, vocabulary 33,278", "c", "plain", 0.80),
    Bar("peak memory, vocabulary 10,000", "c", "plain", 0.50),
    Bar("peak memory, vocabulary 33,278", "c", "plain", 0.50),
    Bar("peak memory in use over the steps", "after 2,000", "after 200", 1.02),
    Bar("peak memory over the steps", "after 6,000", "after 2,000", 1.02),
]


def judge(comparisons: Iterable[Comparison], bars: Iterable[Bar] = BARS) -> list[Verdict]:
    """The verdicts on all bars whose rivals were compared: without a compiler there is no C."""
    measured = {comparison.case: comparison for comparison in comparisons}
    return [
        Verdict(bar, measured[bar.case].ratio(bar.rival, bar.over))
        for bar in bars
        if bar.case in measured and {bar.rival, bar.over} <= measured[bar.case].rounds.keys()
    ]
