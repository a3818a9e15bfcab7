"""``noisin train``: one run, or several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from noisin.cli.consoles import Results, tell
from noisin.cli.progress import Display, clock
from noisin.cli.settings import nested, with_settings
from noisin.experiments import comparison, presets
from noisin.experiments.comparison import ComparisonRow
from noisin.experiments.pictures import learning_curves
from noisin.experiments.seeds import number
from noisin.tasks.unit import common
from noisin.training.record import RunRecord
from noisin.training.runtime.progress import Quiet

PRESET = f"""The base settings: the name of a preset or a TOML file. The flags below override them.
Presets: {presets.known()}."""


@with_settings
def train(
    preset: Annotated[str, Parameter(help=PRESET)] = presets.MAIN_JOB,
    /,
    *,
    out: Path = Path("runs"),
    **flags: str | None,
) -> None:
    """Train a language model. Run the same command again to continue a run that was stopped.

    Without arguments, train the same LSTM without noise, with noise and with dropout on the
    built-in text, and compare the results in a table and a plot; about three minutes.

    A flag overrides the preset, and the preset overrides the default shown here.

    Parameters
    ----------
    out
        The folder in which the folder of the run is created.
    """
    chosen = presets.read(preset)
    configs = chosen.configs(nested(flags))
    folder = out / f"{chosen.name}-{presets.mark(configs.values())}"
    places = [folder / name for name in configs] if chosen.variants else [folder]
    from noisin.training.runtime.distributed import connected

    with connected(next(iter(configs.values())).device) as workers:
        progress = Display() if workers.main else Quiet()
        runs = dict(zip(places, configs.values(), strict=True))
        records = comparison.train_all(runs, progress, workers)
    if workers.main:
        _conclude(records, folder)


def _conclude(records: Sequence[RunRecord], folder: Path) -> None:
    table = comparison.rows(records)
    comparison.write_rows(table, folder / "comparison.json")
    _print(table)
    tell(f"\nThe records are in {folder}{_picture(records, folder)}")


def _picture(records: Sequence[RunRecord], folder: Path) -> str:
    if not learning_curves.can_draw():
        return (
            ". To plot the learning curves, run pip install 'noisin[plot]' and the same command "
            "again."
        )
    path = folder / "learning-curves.svg"
    learning_curves.learning_curves(records, path, path.with_suffix(".png"))
    return f", the learning curves in {path} (and .png)."


def _print(rows: Sequence[ComparisonRow]) -> None:
    console = Results()
    console.width = max(console.width, 120)  # numbers are never truncated
    heads = ("train", "valid", "test", "gap", "best epoch", "time")
    unit = common(row.unit for row in rows)
    table = Table(unit, "weights", *heads, box=None, pad_edge=False)
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows:
        values = (row.train, row.valid, row.test, row.gap)
        shown = ["-" if value is None else number(value, row.unit) for value in values]
        weights = row.weights + (" *" if row.counts else "")
        epochs = f"{row.best_epoch} of {row.epochs}"
        table.add_row(row.run, weights, *shown, epochs, clock(row.seconds))
    console.print(f"\nAt the epoch of the lowest {unit} on valid, noise and dropout off:\n")
    console.print(table)
    if any(not row.counts for row in rows):
        console.print("\n* The weights that are better on valid; their score is that of the run.")
