"""Axes of pictures: their look, whole epochs, and the scale of the scores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from noisin.experiments.pictures.palette import LIGHT
from noisin.tasks.unit import Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HIGHEST = 1e9  # a score beyond this is off the picture
SIZE = (4.8, 3.3)  # inches: as wide as a phone, where a picture cannot be made larger


def new_axes(size: tuple[float, float] = SIZE) -> tuple[Figure, Axes]:
    """A figure with one pair of axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    dress(axes)
    return figure, axes


def dress(axes: Axes) -> None:
    """Style axes in the colours of the palette, with little ink."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(LIGHT["muted"])
    axes.tick_params(color=LIGHT["muted"], labelcolor=LIGHT["ink"], labelsize=10, which="both")
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set(color=LIGHT["ink"], size=11)
    axes.grid(color=LIGHT["grid"], linewidth=0.8)
    axes.set_axisbelow(True)


def whole_epochs(axes: Axes) -> None:
    """Show whole epochs only."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(
        MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)
    )


def is_drawable(score: float, unit: Unit) -> bool:
    """Whether a score can be drawn: a perplexity is positive, nats and bits have any sign.

    >>> from noisin.tasks.unit import NATS_PER_STEP, PERPLEXITY
    >>> [is_drawable(score, PERPLEXITY) for score in (0.0, 80.0, math.inf)]
    [False, True, False]
    >>> [is_drawable(score, NATS_PER_STEP) for score in (-3.0, 0.0, math.nan)]
    [True, True, False]
    """
    return (0 if unit.log_scale else -HIGHEST) < score < HIGHEST


def score_axis(axes: Axes, unit: Unit, top: float = math.inf) -> None:
    """The axis of the scores: logarithmic for perplexities, with nothing above ``top``."""
    if unit.log_scale:
        _log_axis(axes, top)
        return
    low, high = axes.dataLim.intervaly
    if not -math.inf < low <= high < math.inf:  # nothing is drawn
        low, high = 0.0, 1.0
    high = max(low, min(high, top))
    margin = 0.05 * (high - low) or 0.5
    axes.set_ylim(low - margin, high + margin)


def _log_axis(axes: Axes, top: float) -> None:
    """A logarithmic axis with a few round numbers on it."""
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set_yscale("log")
    low, high = axes.dataLim.intervaly
    if not 0 < low <= high < math.inf:  # nothing is drawn
        low, high = 1.0, 10.0
    high = max(low, min(high, top))
    margin = max(0.05, 0.05 * math.log(high / low))
    axes.set_ylim(low * math.exp(-margin), high * math.exp(margin))
    axes.yaxis.set_major_locator(FixedLocator(ticks(*axes.get_ylim())))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers between two others, evenly enough on a logarithmic axis.

    >>> ticks(66, 350)
    [80.0, 100.0, 120.0, 150.0, 200.0, 250.0, 300.0]
    >>> ticks(71, 83)
    [72.0, 74.0, 76.0, 78.0, 80.0, 82.0]
    """
    for step in _steps(low, high):
        found = [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
        if high < 2.5 * low and len(found) <= most:
            return found
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for mantissas in _MANTISSAS:
        found = [float(f"{m}e{k}") for k in decades for m in mantissas]
        found = [tick for tick in found if low <= tick <= high]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]


_MANTISSAS = ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))


def _steps(low: float, high: float) -> list[float]:
    """Round steps, the smallest first, that cut a range into a few parts."""
    unit = 10.0 ** math.floor(math.log10((high - low) / 10))
    return [factor * unit for factor in (1, 2, 5, 10, 20, 50)]
