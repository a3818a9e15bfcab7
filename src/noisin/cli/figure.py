"""``noisin figure``: the paper's figure, from your own runs."""

from __future__ import annotations

from pathlib import Path

from noisin.cli.arguments import WholeNumber
from noisin.cli.consoles import tell
from noisin.cli.progress import Display
from noisin.errors import InvalidValue
from noisin.experiments.collection import collect
from noisin.experiments.formats import one_line
from noisin.experiments.paper import figure1
from noisin.experiments.pictures.learning_curves import check_can_draw, save


def figure(
    number: WholeNumber, /, *, runs: Path = Path("runs"), out: Path = Path("figure-1.svg")
) -> None:
    """Draw a figure of the paper from your own runs. The paper has one.

    Figure 1 is perplexity by epoch, on valid and on train with noise on and off, of an Elman RNN
    without noise and with additive Gaussian noise, of one gamma or several. noisin train
    figure1-clean and noisin train figure1-noisy make its runs. Needs matplotlib: pip install
    'noisin[plot]'.

    Parameters
    ----------
    number
        The number in the paper: 1.
    runs
        The folder to search for runs, at any depth.
    out
        The file to write, .svg or .png; the other one is written next to it.
    """
    if number != 1:
        raise InvalidValue(f"The paper has one figure, so its number must be 1, got {number}.")
    check_can_draw("figure 1")
    found = collect(runs, note=Display().note)
    for record in found.damaged:
        tell(one_line(f"left out: {record.name}: {record.reason}"))
    selection = figure1.select(found, runs)
    paths = save(figure1.figure_1(selection), out)
    for point in selection.points:
        names = ", ".join(run.name for run in point.counted)
        told = f"{point.label}: valid {point.valid} at epoch {point.best_epochs} ({names})"
        tell(one_line(told))
    tell(f"The figure is in {' and '.join(map(str, paths))}.")
