"""Pictures, made from records. Needs matplotlib: ``pip install 'noisin[plot]'``."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisin._util.files import write_atomically
from noisin.errors import InvalidValue, Unsupported
from noisin.training.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def check_can_draw(what: str) -> None:
    """Say what to install where matplotlib is not."""
    if not can_draw():
        raise Unsupported(f"{what} needs matplotlib: pip install 'noisin[plot]'.")


def learning_curves(records: Sequence[RunRecord], *paths: Path) -> None:
    """Perplexity by epoch: valid as a line, dotted for averaged weights; train, noise off, dashed.

    The best epoch on valid is marked, on the line of the weights that are better there.
    Like the paper's Figure 1: without noise the two part, and validation turns up.
    """
    check_can_draw("learning_curves")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)  # no window, whatever the machine is set to
    axes = figure.add_subplot()
    for i, record in enumerate(records):
        _draw(axes, record, f"C{i}")
    axes.plot([], [], color="grey", label="valid")
    if any(line["valid_averaged"] is not None for record in records for line in record.metrics):
        axes.plot([], [], color="grey", linestyle=":", label="valid, averaged weights")
    axes.plot([], [], color="grey", linestyle="--", label="train, noise off")
    axes.set(xlabel="epoch", ylabel="perplexity", yscale="log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter("{x:.0f}")
    axes.yaxis.set_minor_formatter("{x:.0f}")
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False)
    for path in paths:
        content = io.BytesIO()
        figure.savefig(content, format=path.suffix[1:], dpi=150)
        write_atomically(path, content.getvalue())


def _draw(axes: Any, record: RunRecord, colour: str) -> None:
    metrics = record.metrics
    name = record.folder.name.replace("$", r"\$")  # which would begin a formula
    lines: dict[str, dict[str, Any]] = {
        "valid": {"label": name},
        "valid_averaged": {"linestyle": ":"},
        "train_clean": {"linestyle": "--"},
    }
    for key, look in lines.items():
        known = [(line["epoch"], line[key]) for line in metrics if line[key] is not None]
        if known:
            axes.plot(*zip(*known, strict=True), color=colour, **look)
    if record.summary is not None:
        best = record.summary["best"]
        value = best["valid_averaged" if best["weights"] == "averaged" else "valid"]
        if value is not None:
            axes.plot(best["epoch"], value, "o", color=colour)


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
