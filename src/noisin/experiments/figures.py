"""Pictures, made from records. Needs matplotlib: ``pip install 'noisin[plot]'``."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisin.errors import InvalidValue, Unsupported
from noisin.training.files import write_atomically
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
    """Perplexity by epoch: of valid as a line, of train with noise off dashed; the best is marked.

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
    metrics = [line for line in record.metrics if line["valid"] is not None]
    epochs = [line["epoch"] for line in metrics]
    valid = _that_counted(record, metrics)
    name = record.folder.name.replace("$", r"\$")  # which would begin a formula
    axes.plot(epochs, valid, color=colour, label=name)
    clean = [(line["epoch"], line["train_clean"]) for line in metrics if line["train_clean"]]
    if clean:
        axes.plot(*zip(*clean, strict=True), color=colour, linestyle="--")
    if valid:
        best = valid.index(min(valid))
        axes.plot(epochs[best], valid[best], "o", color=colour)


def _that_counted(record: RunRecord, metrics: Sequence[Mapping[str, Any]]) -> list[float]:
    """Of valid, with the weights that the best epoch was chosen by: raw, or their average."""
    if record.summary is None or record.summary["best"]["weights"] != "averaged":
        return [line["valid"] for line in metrics]
    return [line["valid_averaged"] or line["valid"] for line in metrics]


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
