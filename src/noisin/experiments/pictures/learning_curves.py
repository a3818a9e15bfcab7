"""Pictures, made from records. Needs matplotlib: ``pip install 'noisin[plot]'``."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisin._util.files import write_atomically
from noisin.errors import InvalidValue, Unsupported
from noisin.experiments.records import Run, read_run
from noisin.tasks.unit import common
from noisin.training.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def check_can_draw(what: str) -> None:
    """Raise an error that names what to install if matplotlib is not installed."""
    if not can_draw():
        raise Unsupported(f"{what} needs matplotlib: pip install 'noisin[plot]'.")


def learning_curves(records: Sequence[RunRecord], *paths: Path) -> None:
    """Write :func:`draw` of these runs to files, in the format of their suffixes."""
    check_can_draw("learning_curves")
    figure = draw([read_run(record.folder) for record in records])
    for path in paths:
        content = io.BytesIO()
        figure.savefig(content, format=path.suffix[1:], dpi=150)
        write_atomically(path, content.getvalue())


def draw(runs: Sequence[Run]) -> Figure:
    """Scores by epoch: valid as a line, dotted for averaged weights; train, noise off, dashed.

    The best epoch on valid is marked, on the line of the weights that are better there.
    Like the paper's Figure 1: without noise the two part, and validation turns up.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)  # no window, whatever the machine is set to
    axes = figure.add_subplot()
    for i, run in enumerate(runs):
        _draw(axes, run, f"C{i}")
    axes.plot([], [], color="grey", label="valid")
    if any(line["valid_averaged"] is not None for run in runs for line in run.metrics):
        axes.plot([], [], color="grey", linestyle=":", label="valid, averaged weights")
    axes.plot([], [], color="grey", linestyle="--", label="train, noise off")
    log_scale = all(run.unit.log_scale for run in runs)
    axes.set(xlabel="epoch", ylabel=common(run.unit for run in runs))
    if log_scale:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter("{x:.0f}")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter("{x:.0f}" if log_scale else "{x:g}")
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False)
    return figure


def _draw(axes: Any, run: Run, colour: str) -> None:
    name = run.name.replace("$", r"\$")  # which would begin a formula
    lines: dict[str, dict[str, Any]] = {
        "valid": {"label": name},
        "valid_averaged": {"linestyle": ":"},
        "train_clean": {"linestyle": "--"},
    }
    for key, look in lines.items():
        known = [(line["epoch"], line[key]) for line in run.metrics if _is_finite(line[key])]
        if known:
            axes.plot(*zip(*known, strict=True), color=colour, **look)
    if run.complete and run.best is not None and _is_finite(run.best["best_valid"]):
        axes.plot(run.best["epoch"], run.best["best_valid"], "o", color=colour)


def _is_finite(score: float | None) -> bool:
    return score is not None and math.isfinite(score)


def save(figure: Figure, out: Path) -> tuple[Path, Path]:
    """Write a picture as SVG and as PNG, the same bytes each time; return both paths."""
    import matplotlib

    if out.suffix not in {".svg", ".png"}:
        raise InvalidValue(f"--out must be a file ending in .svg or .png, got {out}.")
    paths = out.with_suffix(".svg"), out.with_suffix(".png")
    with matplotlib.rc_context({"svg.hashsalt": "noisin"}):
        for path, metadata in zip(paths, ({"Date": None}, {}), strict=True):
            content = io.BytesIO()
            figure.savefig(content, format=path.suffix[1:], dpi=160, metadata=metadata)
            write_atomically(path, content.getvalue())
    return paths
