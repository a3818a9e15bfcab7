"""Pictures of what a model draws: piano rolls, and forecasts with their bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noisin.experiments.pictures.axes import dress
from noisin.experiments.pictures.palette import LIGHT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOWEST, MIDDLE_C, OCTAVE = 21, 60, 12  # MIDI numbers
MOST_PANELS = 8


def piano_roll(piece: NDArray[Any], title: str = "") -> Figure:
    """The notes of a piece, ``(frames, 88)``, from low to high, by frame."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.add_subplot()
    dress(axes)
    frame, note = np.nonzero(piece)
    axes.barh(LOWEST + note, 1.0, 0.8, left=frame, color=LIGHT["series-0"])
    axes.set(xlabel="frame", ylabel="note", title=title, xlim=(0, max(1, len(piece))))
    heard = LOWEST + note if len(note) else np.array([MIDDLE_C])
    axes.set_ylim(heard.min() - 3, heard.max() + 3)
    octaves = [n for n in range(24, 109, OCTAVE) if heard.min() - 3 <= n <= heard.max() + 3]
    axes.set_yticks(octaves, [f"C{n // OCTAVE - 1}" for n in octaves])
    axes.title.set(size=11, color=LIGHT["ink"])
    return figure


def forecast_bands(
    targets: Sequence[str],
    past: NDArray[Any],
    observed: NDArray[Any],
    samples: NDArray[Any],
    naive: Mapping[int, NDArray[Any]],
    levels: Sequence[float],
) -> Figure:
    """One forecast: its median and central bands, what came, and the seasonal-naive forecast.

    Args:
        targets: the names of the O targets; the first few are drawn, one above the other.
        past: what was known, ``(T, O)``.
        observed: what came, ``(H, O)``.
        samples: the paths, ``(K, H, O)``.
        naive: the naive forecasts by season, ``(H, O)``.
        levels: of the bands.
    """
    from matplotlib.figure import Figure

    shown = targets[:MOST_PANELS]
    figure = Figure(figsize=(8, 1.7 + 1.9 * len(shown)), layout="constrained")
    ahead, before = np.arange(len(observed)), np.arange(-len(past), 0)
    for i, (axes, name) in enumerate(
        zip(figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0], shown, strict=True)
    ):
        dress(axes)
        for shade, level in enumerate(sorted(levels, reverse=True)):
            low, high = np.quantile(samples[..., i], [(1 - level) / 2, (1 + level) / 2], axis=0)
            axes.fill_between(
                ahead,
                low,
                high,
                color=LIGHT["series-0"],
                alpha=0.15 + 0.15 * shade,
                linewidth=0,
                label=f"{100 * level:g} %",
            )
        axes.plot(ahead, np.median(samples[..., i], 0), color=LIGHT["series-0"], label="median")
        seen = np.concatenate([past[:, i], observed[:, i]])
        axes.plot([*before, *ahead], seen, color=LIGHT["ink"], linewidth=1, label="observed")
        for style, (season, values) in zip(("--", ":", "-."), naive.items(), strict=False):
            axes.plot(
                ahead,
                values[:, i],
                color=LIGHT["series-1"],
                linestyle=style,
                linewidth=1,
                label=f"{season} steps before",
            )
        axes.set_ylabel(name)
        axes.axvline(-0.5, color=LIGHT["muted"], linewidth=0.8)
    axes.set_xlabel("steps after the origin of the forecast")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    return figure
