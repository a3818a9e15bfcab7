"""``noisin train``: one run, or several side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from noisin.cli.arguments import Switch
from noisin.cli.consoles import new_table, show_table, tell, tell_sentences
from noisin.cli.plan import show_runs
from noisin.cli.progress import Display, clock
from noisin.cli.settings import nested, with_settings
from noisin.experiments import comparison, presets
from noisin.experiments.comparison import ComparisonRow
from noisin.experiments.pictures import learning_curves
from noisin.experiments.seeds import number
from noisin.tasks.unit import common
from noisin.training.config import RunConfig
from noisin.training.record import RunRecord
from noisin.training.runtime.progress import Progress, Quiet

PRESET = f"""The base settings: the name of a preset or a TOML file. The flags below override them.
Presets: {presets.known()}."""


@with_settings
def train(
    preset: Annotated[str, Parameter(help=PRESET)] = presets.MAIN_JOB,
    /,
    *,
    out: Path = Path("runs"),
    dry_run: Switch = False,
    **flags: str | None,
) -> None:
    """Train a model of text, music or series. Run the same command again to continue a run that
    was stopped.

    Without arguments, train the same LSTM without noise, with noise and with dropout on the
    built-in text, and compare the results in a table and a plot; about three minutes.

    A flag overrides the preset, and the preset overrides the default shown here.

    Parameters
    ----------
    out
        The folder in which the folder of the run is created.
    dry_run
        Show what would be trained, in which folder, and train nothing.
    """
    chosen = presets.read(preset)
    configs = chosen.configs(nested(flags))
    folder = out / f"{chosen.name}-{presets.mark(configs.values())}"
    places = [folder / name for name in configs] if chosen.variants else [folder]
    runs = dict(zip(places, configs.values(), strict=True))
    if dry_run:
        show_runs(runs)
        return
    from noisin.training.runtime.distributed import connected

    with connected(next(iter(configs.values())).device) as workers:
        progress: Progress = Display(runs=_left(runs)) if workers.main else Quiet()
        records = comparison.train_all(runs, progress, workers)
    if workers.main:
        _conclude(records, folder)


def _conclude(records: Sequence[RunRecord], folder: Path) -> None:
    table = comparison.rows(records)
    comparison.write_rows(table, folder / "comparison.json")
    _print(table)
    tell_sentences(f"\nThe records are in {folder}{_picture(records, folder)}")


def _left(runs: Mapping[Path, RunConfig]) -> int:
    """The number of runs that are not complete."""
    from noisin.training.resume import is_complete

    return sum(not is_complete(RunRecord(folder), config) for folder, config in runs.items())


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
    unit = common(row.unit for row in rows)
    heads = ("train", "valid", "test", "gap", "best epoch", "time")
    table = new_table(unit, "weights", *heads, left=(0, 1))
    table.columns[1].no_wrap = True
    for row in rows:
        values = (row.train, row.valid, row.test, row.gap)
        shown = ["-" if value is None else number(value, row.unit) for value in values]
        weights = row.weights + (" *" if row.counts else "")
        epochs = f"{row.best_epoch} of {row.epochs}"
        table.add_row(Text(row.run), weights, *shown, epochs, clock(row.seconds))
    tell(f"\nAt the epoch of the lowest {unit} on valid, noise and dropout off:\n")
    show_table(table)
    if any(not row.counts for row in rows):
        tell("\n* The weights that are better on valid; their score is that of the run.")
