"""The paper's Figure 1: a noise-free Elman RNN overfits after a few epochs, a noisy one does not.

Drawn from the records of runs: an Elman RNN with sigmoid, one layer of 256 units, on Penn
Treebank, without noise and with additive Gaussian noise of one or several gammas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisin.errors import InvalidValue
from noisin.experiments import words
from noisin.experiments.group import PointGroup, grouped, one_per_seed
from noisin.experiments.pictures import charts
from noisin.experiments.pictures.axes import dress, score_axis, whole_epochs
from noisin.experiments.pictures.charts import PLAIN, Style
from noisin.experiments.pictures.learning_curves import check_can_draw
from noisin.experiments.pictures.palette import LIGHT, MARKERS, SERIES
from noisin.experiments.records import Run, comparable
from noisin.tasks.unit import PERPLEXITY
from noisin.training.config import RunConfig

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 4  # panels in a row; the first one is without noise
RECIPES = ("figure1-clean", "figure1-noisy")


@dataclass(frozen=True)
class Selection:
    """The runs of the figure: without noise, and with noise in the order of its std."""

    clean: PointGroup
    noisy: tuple[PointGroup, ...]

    @property
    def points(self) -> tuple[PointGroup, ...]:
        """All of them."""
        return (self.clean, *self.noisy)


def select(runs: Iterable[Run], folder: Path) -> Selection:
    """Select the runs of the figure; they share all settings except noise, seed and limits."""
    elman = [run for run in runs if run.unit == PERPLEXITY and _is_elman(run.config)]
    elman = [run for run in elman if run.metrics]
    found = [_selection(some) for some in grouped(elman, _likeness).values()]
    whole = [selection for selection in found if selection is not None]
    if whole:
        return max(whole, key=_epochs)
    kinds = {"clean" if run.config.noise is None else "noisy" for run in elman}
    raise InvalidValue(_missing(kinds, folder))


def figure_1(selection: Selection) -> Figure:
    """A panel for each noise, with the curve of the noise-free RNN in all of them."""
    check_can_draw("figure 1")
    from matplotlib.figure import Figure

    points = selection.points
    columns = min(MOST, len(points))
    rows = -(-len(points) // columns)
    size = (max(5.5, 0.6 + 3.1 * columns), 0.4 + 3.1 * rows)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    flat = list(panels.flat)
    for axes, point in zip(flat, points, strict=False):
        _panel(axes, point, selection.clean)
    for axes in flat[len(points) :]:
        axes.set_axis_off()
    for axes in panels[:, 0]:
        axes.set_ylabel(str(PERPLEXITY))
    _legend(figure)
    whole_epochs(flat[0])
    score_axis(flat[0], PERPLEXITY)
    return figure


def _panel(axes: Axes, point: PointGroup, clean: PointGroup) -> None:
    dress(axes)
    noisy = point is not clean
    style = Style(SERIES[0], MARKERS[0]) if noisy else PLAIN
    if noisy:
        charts.draw_curve(axes, clean.counted, "valid", charts.OTHERS)
    charts.draw_curve(axes, point.counted, "valid", style)
    charts.draw_curve(axes, point.counted, "train_clean", style, dash=charts.DASHED)
    if noisy:
        charts.draw_curve(axes, point.counted, "train", style, dash=charts.DOTTED)
    charts.mark_best(axes, point.counted, style)
    axes.set_title(_title(point), size=10.5, color=LIGHT["ink"])
    axes.set_xlabel("epoch")


def _title(point: PointGroup) -> str:
    noise = "no noise" if point.std is None else f"Gaussian noise, γ = {point.std:g}"
    seeds = "" if len(point.counted) == 1 else f"{len(point.counted)} seeds, "
    best = "infinite" if point.valid is None else str(point.valid)
    return f"{noise}\n{seeds}best {best} at epoch {point.best_epochs}"


def _legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D

    ink = LIGHT["ink"]
    entries: dict[str, Any] = {
        "validation": {"linestyle": "-"},
        "training, noise off": {"linestyle": charts.DASHED},
        "training, noise on": {"linestyle": charts.DOTTED},
        "best epoch": {"linestyle": "none", "marker": MARKERS[0], "markersize": 7},
        "validation without noise": {"color": LIGHT["muted"], "linewidth": 0.8},
    }
    handles = [
        Line2D([], [], **({"color": ink, "linewidth": 1.6} | look), label=name)
        for name, look in entries.items()
    ]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=3, frameon=False, labelcolor=ink
    )


def _is_elman(config: RunConfig) -> bool:
    model, noise = config.model, config.noise
    ours = (model.cell, model.num_layers, model.hidden_size) == ("elman-sigmoid", 1, 256)
    additive = noise is None or (noise.family, noise.mode) == ("gaussian", "additive")
    return ours and additive and config.data.name == "ptb" and not words.has_dropout(config)


def _likeness(run: Run) -> tuple[str, ...]:
    """The text, and all settings by which runs compare except those of the noise."""
    settings = comparable(run.config).settings()
    noise_free = [name for name in settings if not name.startswith("noise")]
    return str(run.text), *(f"{name} = {settings[name]!r}" for name in noise_free)


def _selection(runs: Sequence[Run]) -> Selection | None:
    points = [
        PointGroup(words.noise(some[0].config.noise), *one_per_seed(some))
        for some in grouped(runs, lambda run: run.point).values()
    ]
    clean = [point for point in points if point.std is None]
    noisy = [point for point in points if point.std is not None]
    if not clean or not noisy:
        return None
    return Selection(clean[0], tuple(sorted(noisy, key=lambda point: point.std or 0.0)))


def _epochs(selection: Selection) -> int:
    return sum(len(run.metrics) for point in selection.points for run in point.runs)


def _missing(found: set[str], folder: Path) -> str:
    if found == {"clean", "noisy"}:
        problem = "has runs without noise and runs with it, but they differ in more than that"
    else:
        lacking = " and ".join(sorted({"clean", "noisy"} - found))
        problem = f"has no {lacking} run with a complete epoch"
    commands = "\n".join(f"  noisin train {recipe} --out {folder}" for recipe in RECIPES)
    return (
        f"figure 1: {folder} {problem}. It needs an Elman-sigmoid RNN of 1 × 256 on ptb, without "
        f"noise and with additive Gaussian noise. To make them:\n{commands}\nand for other "
        f"strengths of the noise: --noise.gamma 0.4"
    )
