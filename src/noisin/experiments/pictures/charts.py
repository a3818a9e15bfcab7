"""The pictures of a task: perplexity by epoch, and perplexity by the spread of the noise.

What they show has no words in it but those of the axes: the names of the lines are the page's.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from noisin.experiments import words
from noisin.experiments.group import PointGroup, TaskGroup
from noisin.experiments.pictures.axes import new_axes, perplexities, whole_epochs
from noisin.experiments.pictures.palette import LIGHT, MARKERS, SERIES, Polygon
from noisin.experiments.records import Run
from noisin.training.config import FamilyName

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HIGHEST = 1e9  # a perplexity beyond this is off the picture
DASHED: Any = (0, (4, 2))
DOTTED: Any = (0, (1, 1.2))
FAMILIES: tuple[FamilyName, ...] = get_args(FamilyName)


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
# By the family of the noise, and of what has none but is not plain either, such as dropout.
LOOKS: dict[FamilyName | None, Style] = {
    family: Style(colour, marker)
    for family, colour, marker in zip((*FAMILIES, None), SERIES, MARKERS[1:], strict=True)
}


def styles(task: TaskGroup) -> dict[str, Style]:
    """A style for the best points of a task, by their labels. The plain one is as black as ink.

    The best of each family looks as the family does where that is a line.
    """
    plain = [p for p in task.points if p.config.noise is None and not words.has_dropout(p.config)]
    chosen = {point.label: PLAIN for point in plain[:1]}
    rest = [point for point in task.points if point.label not in chosen][: len(LOOKS)]
    free = dict(LOOKS)
    for point in rest:
        family = point.config.noise.family if point.config.noise else None
        if family in free:
            chosen[point.label] = free.pop(family)
    others = [point.label for point in rest if point.label not in chosen]
    return chosen | dict(zip(others, free.values(), strict=False))


def learning_curves(task: TaskGroup) -> tuple[Figure, list[LegendLine]]:
    """Perplexity by epoch: valid as a line, train with noise off dashed, the best marked.

    Of several seeds the mean, as far as all of them went, and the range as a band.
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
    axes.set(xlabel="epoch", ylabel="perplexity")
    whole_epochs(axes)
    perplexities(axes, top=_top(point for point in task.points if point.label in known))
    named = [line for line in reversed(lines) if line.style is not OTHERS]
    rest = len(lines) - len(named)
    return figure, named + ([LegendLine(f"{rest} others, valid only", OTHERS)] if rest else [])


def spread(task: TaskGroup) -> tuple[Figure, list[LegendLine]] | None:
    """Validation perplexity at the best epoch by the std of the noise, a line for each family.

    Of complete runs alone. None if fewer than two of the points have noise. Beside them, as levels,
    the same without noise, and the best with dropout instead.
    """
    points = [point for point in task.points if point.complete and _drawable(point)]
    noisy = [point for point in points if point.std is not None]
    if len(noisy) < 2:
        return None
    figure, axes = new_axes()
    lines = [_level(axes, point) for point in _levels(points)]
    for label, some in sorted(_by_kind(noisy).items()):
        lines.append(_by_std(axes, label, sorted(some, key=lambda point: point.std or 0.0)))
    axes.set(xlabel="standard deviation of the noise", ylabel="perplexity on valid")
    axes.set_xlim(left=0)
    perplexities(axes)
    return figure, lines


def _top(points: Iterable[PointGroup]) -> float:
    """The highest perplexity that matters: of many epochs the first are far above, and alike."""
    curves = [run.valid for point in points for run in point.counted]
    later = [v for curve in curves for v in curve[len(curve) // 4 if len(curve) > 7 else 0 :]]
    return 1.1 * max((v for v in later if v is not None and v < HIGHEST), default=HIGHEST)


def _drawable(point: PointGroup) -> bool:
    return point.valid is not None and 0 < point.valid.mean < HIGHEST


def _by_kind(points: Iterable[PointGroup]) -> dict[str, list[PointGroup]]:
    """Points that differ in the spread of their noise alone."""
    kinds: dict[str, list[PointGroup]] = {}
    for point in points:
        noise = point.config.noise
        assert noise is not None
        kinds.setdefault(point.label.replace(words.noise(noise), words.kind(noise)), []).append(
            point
        )
    return kinds


def _levels(points: Iterable[PointGroup]) -> list[PointGroup]:
    usual = [point for point in points if point.std is None and "," not in point.label]
    plain = [point for point in usual if not words.has_dropout(point.config)]
    return plain[:1] + [point for point in usual if point not in plain][:1]


def _level(axes: Axes, point: PointGroup) -> LegendLine:
    style = Style("ink", MARKERS[0], dashed=words.has_dropout(point.config))
    assert point.valid is not None
    axes.axhline(point.valid.mean, color=LIGHT["ink"], linewidth=1.3, linestyle=_dash(style))
    return LegendLine(point.label, style)


def _by_std(axes: Axes, label: str, points: Sequence[PointGroup]) -> LegendLine:
    noise = points[0].config.noise
    assert noise is not None
    style = replace(LOOKS[noise.family], dashed=words.has_dropout(points[0].config))
    valid = [point.valid for point in points if point.valid is not None]
    axes.errorbar(
        [point.std or 0.0 for point in points],
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
    return LegendLine(label, style)


def draw_curve(axes: Axes, runs: Sequence[Run], name: str, style: Style, dash: Any = "-") -> bool:
    """A perplexity of some runs by epoch; return whether there was anything to draw."""
    colour = LIGHT[style.colour]
    rows = list(zip(*(_perplexities(run, name) for run in runs), strict=False))
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
    bests = [run.best for run in runs if run.best and 0 < run.best["best_valid"] < HIGHEST]
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


def _perplexities(run: Run, name: str) -> list[float | None]:
    return run.valid if name == "valid" else [line[name] for line in run.metrics]


def _over(of: Callable[[Sequence[float]], float], row: Sequence[float | None]) -> float:
    """Mean, least or greatest of the seeds in an epoch; a hole where one cannot be drawn."""
    known = [value for value in row if value is not None and 0 < value < HIGHEST]
    return of(known) if len(known) == len(row) else math.nan


def _dash(style: Style) -> Any:
    return DASHED if style.dashed else "-"
