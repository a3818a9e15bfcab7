"""Pictures, made from records. Needs matplotlib: ``pip install 'noisin[plot]'``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from noisin.errors import Unsupported
from noisin.training.record import RunRecord


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def learning_curves(records: Sequence[RunRecord], *paths: Path) -> None:
    """Perplexity by epoch: of valid as a line, of train with noise off dashed; the best is marked.

    Like the paper's Figure 1: without noise the two part, and validation turns up.
    """
    if not can_draw():
        raise Unsupported("learning_curves needs matplotlib: pip install 'noisin[plot]'.")
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
        figure.savefig(path, dpi=150)


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
