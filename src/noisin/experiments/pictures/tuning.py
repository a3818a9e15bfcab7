"""The picture of a search: scores by the std of the noise, a line for each rung."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noisin.experiments.pictures.axes import is_drawable, new_axes, score_axis
from noisin.experiments.pictures.palette import LIGHT, combination
from noisin.experiments.tuning.driver import TunedRun
from noisin.tuning.search import by_rung

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = (6.4, 4.0)
DASHED: Any = (0, (4, 2))


def tuning_picture(found: TunedRun) -> Figure:
    """Scores on valid by std, a line for each number of epochs; the chosen one has a ring.

    Dashed: without noise, after as many epochs as the first line.
    """
    from matplotlib.ticker import FixedLocator, NullLocator

    figure, axes = new_axes(SIZE)
    tuned, unit = found.tuned, found.unit
    for k, (epochs, scores) in enumerate(by_rung(tuned.tried, _first_lr(found))):
        colour, marker = combination(k)
        values = {std: unit.value(nats) for std, nats in scores.items()}
        values = {std: v for std, v in values.items() if is_drawable(v, unit)}
        label = f"after {epochs} epoch{'s' * (epochs > 1)}"
        axes.plot(
            list(values), list(values.values()), color=LIGHT[colour], marker=marker, label=label
        )
    if found.clean is not None and is_drawable(level := unit.value(found.clean.score), unit):
        label = f"std 0, after {found.clean.epochs}"
        axes.axhline(level, color=LIGHT["ink"], linestyle=DASHED, linewidth=1.2, label=label)
    chosen = unit.value(tuned.score)
    axes.plot(
        [tuned.std], [chosen], "o", markersize=14, fillstyle="none", color=LIGHT["ink"],
        label="chosen" if tuned.lr == _first_lr(found) else f"chosen, lr {tuned.lr:g}",
    )  # fmt: skip
    stds = sorted({one.std for one in tuned.tried})
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(stds))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlabel="standard deviation", ylabel=f"{unit} on valid")
    score_axis(axes, unit)
    axes.legend(frameon=False, fontsize=9)
    return figure


def _first_lr(found: TunedRun) -> float | None:
    """The learning rate of the settings, with which all stds were trained."""
    return found.tuned.tried[0].lr
