"""The picture in the docs: ratios to torch's LSTM, and how cost grows. Drawn from a record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.growth import exponent
from benchmarks.timing import Comparison

RIVALS = {
    "loop": ("loop over LSTMCell, with noise", "C7", "v"),
    "eager": ("noisin, eager", "C0", "o"),
    "c": ("noisin, C kernel", "C2", "s"),
    "limit": ("matrix products alone", "C1", "_"),
}
CURVES = ("T", "N", "H", "vocabulary")


def draw(comparisons: Sequence[Comparison], title: str, path: Path) -> None:
    """Write the picture; needs matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "noisin"  # the same figures give the same file
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(10, 7), layout="constrained")
    top, bottom = figure.subfigures(2, height_ratios=(1.1, 1))
    draw_layers(top.subplots(), [c for c in comparisons if c.case.startswith("LSTM")])
    measured = {c.case: c for c in comparisons}
    for axes, name in zip(bottom.subplots(1, len(CURVES)), CURVES, strict=True):
        for who, color in (("noisin", "C2"), ("torch", "black")):
            if curve := measured.get(f"growth with {name}, {who}"):
                draw_curve(axes, curve, who, color)
        axes.set(xscale="log", yscale="log", xlabel=name)
        axes.minorticks_off()
        number(axes)
    bottom.supylabel("µs per token")
    figure.suptitle(title, fontsize="medium")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def number(axes: Any) -> None:
    """Numbers on a logarithmic axis, also where it spans less than a decade: then at least 4 : 1.

    What hardly varies is to look so.
    """
    from matplotlib.ticker import LogLocator

    low, high = axes.get_ylim()
    more = max(1.0, 4 * low / high) ** 0.5
    axes.set_ylim(low / more, high * more)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=20))
    axes.yaxis.set_major_formatter("{x:g}")


def draw_layers(axes: Any, layers: Sequence[Comparison]) -> None:
    """Time over torch's without noise, size by size."""
    for k, (rival, (label, color, marker)) in enumerate(RIVALS.items()):
        known = [(x, c.ratio(rival, "torch")) for x, c in enumerate(layers) if rival in c.rounds]
        if not known:
            continue
        middle = [q.median for _, q in known]
        errors = [[q.median - q.low for _, q in known], [q.high - q.median for _, q in known]]
        places = [x + 0.12 * (k - 1.5) for x, _ in known]
        style = {"color": color, "marker": marker, "linestyle": "none", "markersize": 7}
        axes.errorbar(places, middle, yerr=errors, label=label, **style)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks(range(len(layers)), [c.case.removeprefix("LSTM ") for c in layers])
    axes.set(yscale="log", ylabel="time over torch.nn.LSTM\nwithout noise", xlabel="H × N")
    ticks = (0.7, 1, 1.5, 2, 3, 5, 10)
    axes.set_yticks(ticks, [f"{t:g}" for t in ticks], minor=False)
    axes.minorticks_off()
    axes.legend(loc="upper center", ncols=len(RIVALS), fontsize="small", frameon=False)


def draw_curve(axes: Any, curve: Comparison, who: str, color: str) -> None:
    """Microseconds per token, with quartiles, and the fitted exponent."""
    spreads = [curve.spread(size) for size in curve.rounds]
    sizes = [int(size) for size in curve.rounds]
    label = f"{who}, exponent {exponent(curve).median:.2f}"
    axes.plot(sizes, [1e6 * s.median for s in spreads], ".-", color=color, label=label)
    low, high = ([1e6 * s.low for s in spreads], [1e6 * s.high for s in spreads])
    axes.fill_between(sizes, low, high, color=color, alpha=0.2, linewidth=0)
    axes.legend(fontsize="x-small", frameon=False)
