"""The pictures of a task: scores by epoch, and scores by the spread of the noise.

The only text in them is that of the axes: the page shows the names of the lines.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from noisin.experiments import words
from noisin.experiments.group import PointGroup, TaskGroup
from noisin.experiments.pictures.axes import (
    HIGHEST,
    is_drawable,
    new_axes,
    score_axis,
    whole_epochs,
)
from noisin.experiments.pictures.palette import LIGHT, MARKERS, Polygon, combination
from noisin.experiments.records import Run
from noisin.tasks.unit import Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHED: Any = (0, (4, 2))
DOTTED: Any = (0, (1, 1.2))
PAPER = ("gaussian", "bernoulli", "gamma", "gumbel", "laplace", "logistic", "beta", "chi-square")


@dataclass(frozen=True)
class Style:
    """How a line looks."""

    colour: str
    marker: Polygon
    dashed: bool = False


@dataclass(frozen=True)
class LegendLine:
    """A line of a picture and its name."""

    label: str
    style: Style


OTHERS = Style("muted", MARKERS[0])
PLAIN = Style("ink", MARKERS[0])
# By the family of the noise, and None: without noise but not plain either, such as dropout.
LOOKS: dict[str | None, Style] = {
    family: Style(*combination(k)) for k, family in enumerate((*PAPER, None))
}


def looks(families: Iterable[str]) -> dict[str | None, Style]:
    """A style for each family, all different: those of the paper's, and the next ones for others.

    >>> found = looks(["beta", "my_package.noises:Cauchy", "triangular"])
    >>> found["beta"] == LOOKS["beta"], len(set(found.values()))
    (True, 11)
    """
    others = sorted(set(families) - set(PAPER))
    further = {name: Style(*combination(len(LOOKS) + k)) for k, name in enumerate(others)}
    return LOOKS | further


def _families(task: TaskGroup) -> set[str]:
    return {point.config.noise.family for point in task.points if point.config.noise is not None}


def styles(task: TaskGroup) -> dict[str, Style]:
    """A style for the best points of a task, by their labels. The plain one is as black as ink.

    The best of each family has the look that the family has where it is a line.
    """
    plain = [point for point in task.points if words.is_plain(point.config)]
    chosen = {point.label: PLAIN for point in plain[:1]}
    free = looks(_families(task))
    rest = [point for point in task.points if point.label not in chosen][: len(free)]
    for point in rest:
        if (family := _family(point)) in free:
            chosen[point.label] = free.pop(family)
    others = [point.label for point in rest if point.label not in chosen]
    return chosen | dict(zip(others, free.values(), strict=False))


def learning_curves(task: TaskGroup) -> tuple[Figure, list[LegendLine]]:
    """Scores by epoch: valid as a line, train with noise off dashed, the best marked.

    Of several seeds the mean, over the epochs that all of them have, and the range as a band.
    """
    figure, axes = new_axes()
    known = styles(task)
    lines = []
    for point in reversed(task.points):  # the best one on top
        style = known.get(point.label, OTHERS)
        if not draw_curve(axes, point.counted, "valid", style):
            continue
        if style is not OTHERS:
            draw_curve(axes, point.counted, "train_clean", style, DASHED)
            mark_best(axes, point.counted, style)
        lines.append(LegendLine(point.label, style))
    axes.set(xlabel="epoch", ylabel=str(task.unit))
    whole_epochs(axes)
    top = _top([point for point in task.points if point.label in known], task.unit)
    score_axis(axes, task.unit, top)
    named = [line for line in reversed(lines) if line.style is not OTHERS]
    rest = len(lines) - len(named)
    others = f"{rest} {'others' if rest > 1 else 'other'}, valid only"
    return figure, named + ([LegendLine(others, OTHERS)] if rest else [])


def spread(task: TaskGroup) -> tuple[Figure, list[LegendLine]] | None:
    """The score on valid at the best epoch by the std of the noise, a line for each family.

    Of complete runs only. None if fewer than two of the points have noise. Dropout of one rate has
    its place too, as noise of the std ``sqrt(p / (1 - p))``. In addition, as levels, the same
    without noise, and the best with dropout of several rates instead.
    """
    points = [point for point in task.points if point.complete and _drawable(point)]
    noisy = [point for point in points if point.std is not None]
    if len(noisy) < 2:
        return None
    figure, axes = new_axes()
    lines = [_level(axes, point) for point in _levels(points)]
    known = looks(_families(task))
    placed = noisy + [point for point in points if point.dropout_std is not None]
    for label, some in sorted(_by_kind(placed).items()):
        with_noise = some[0].config.noise is not None
        dashed = with_noise and words.has_dropout(some[0].config)
        style = replace(known[_family(some[0])], dashed=dashed)
        _by_std(axes, style, sorted(some, key=_std))
        lines.append(LegendLine(label, style))
    axes.set(xlabel="standard deviation of the noise", ylabel=f"{task.unit} on valid")
    axes.set_xlim(left=0)
    score_axis(axes, task.unit)
    return figure, lines


def _top(points: Iterable[PointGroup], unit: Unit) -> float:
    """The highest score to show: of many epochs the first ones are far above, and alike."""
    curves = [run.valid for point in points for run in point.counted]
    later = [v for curve in curves for v in curve[len(curve) // 4 if len(curve) > 7 else 0 :]]
    highest = max((v for v in later if v is not None and v < HIGHEST), default=HIGHEST)
    return 1.1 * highest if unit.log_scale else highest


def _drawable(point: PointGroup) -> bool:
    return point.valid is not None and is_drawable(point.valid.mean, point.unit)


def _family(point: PointGroup) -> str | None:
    return point.config.noise.family if point.config.noise else None


def _std(point: PointGroup) -> float:
    """The place of a point on the axis: the spread of its noise, else of its dropout."""
    return point.std if point.std is not None else point.dropout_std or 0.0


def _by_kind(points: Iterable[PointGroup]) -> dict[str, list[PointGroup]]:
    """Points that differ in the spread of their noise, or in the rate of their dropout, alone."""
    kinds: dict[str, list[PointGroup]] = {}
    for point in points:
        noise = point.config.noise
        if noise is None:
            whole, kind = words.dropout(point.config), "dropout"
        else:
            whole, kind = words.noise(noise), words.kind(noise)
        kinds.setdefault(point.label.replace(whole, kind), []).append(point)
    return kinds


def _levels(points: Iterable[PointGroup]) -> list[PointGroup]:
    usual = [point for point in points if point.std is None and "," not in point.label]
    usual = [point for point in usual if point.dropout_std is None]
    plain = [point for point in usual if not words.has_dropout(point.config)]
    return plain[:1] + [point for point in usual if point not in plain][:1]


def _level(axes: Axes, point: PointGroup) -> LegendLine:
    style = Style("ink", MARKERS[0], dashed=words.has_dropout(point.config))
    assert point.valid is not None
    axes.axhline(point.valid.mean, color=LIGHT["ink"], linewidth=1.3, linestyle=_dash(style))
    return LegendLine(point.label, style)


def _by_std(axes: Axes, style: Style, points: Sequence[PointGroup]) -> None:
    valid = [point.valid for point in points if point.valid is not None]
    axes.errorbar(
        [_std(point) for point in points],
        [v.mean for v in valid],
        [v.std or 0.0 for v in valid],
        color=LIGHT[style.colour],
        linestyle=_dash(style),
        linewidth=1.3,
        elinewidth=1,
        marker=style.marker,
        markersize=7,
        markeredgecolor=LIGHT["page"],
        markeredgewidth=0.6,
    )


def draw_curve(axes: Axes, runs: Sequence[Run], name: str, style: Style, dash: Any = "-") -> bool:
    """A score of some runs by epoch; return whether there was anything to draw."""
    colour = LIGHT[style.colour]
    rows = [
        [value if value is not None and is_drawable(value, runs[0].unit) else None for value in row]
        for row in zip(*(_scores(run, name) for run in runs), strict=False)
    ]
    curve = [_over(statistics.fmean, row) for row in rows]
    if not any(math.isfinite(value) for value in curve):
        return False
    epochs = range(1, len(curve) + 1)
    weight = 0.8 if style is OTHERS else 1.6
    alpha = 0.5 if style is OTHERS else 1.0
    axes.plot(epochs, curve, color=colour, linewidth=weight, alpha=alpha, linestyle=dash)
    if len(runs) > 1 and style is not OTHERS and dash == "-":
        low = [_over(min, row) for row in rows]
        high = [_over(max, row) for row in rows]
        axes.fill_between(epochs, low, high, color=colour, alpha=0.18, linewidth=0)
    return True


def mark_best(axes: Axes, runs: Sequence[Run], style: Style) -> None:
    """The best epoch of each run."""
    bests = [run.best for run in runs if run.best]
    bests = [best for best in bests if is_drawable(best["best_valid"], runs[0].unit)]
    axes.plot(
        [best["epoch"] for best in bests],
        [best["best_valid"] for best in bests],
        color=LIGHT[style.colour],
        linestyle="none",
        marker=style.marker,
        markersize=8,
        markeredgecolor=LIGHT["page"],
        markeredgewidth=0.6,
        zorder=3,
    )


def _scores(run: Run, name: str) -> list[float | None]:
    return run.valid if name == "valid" else [line[name] for line in run.metrics]


def _over(of: Callable[[Sequence[float]], float], row: Sequence[float | None]) -> float:
    """Mean, minimum or maximum of the seeds in an epoch; a gap where one cannot be drawn."""
    known = [value for value in row if value is not None]
    return of(known) if len(known) == len(row) else math.nan


def _dash(style: Style) -> Any:
    return DASHED if style.dashed else "-"
