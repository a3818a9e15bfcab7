"""``noisin sweep``: many runs, by several processes."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from noisin._util.wording import message
from noisin.cli.arguments import WholeNumber, require_text
from noisin.cli.board import SweepBoard
from noisin.cli.consoles import Results, tell
from noisin.cli.settings import nested, with_settings
from noisin.errors import InvalidValue, Unsupported
from noisin.experiments import sweep as sweeps
from noisin.experiments.sweep.standing import PointRow, Standing, point_rows

SWEEP = f"""The sweep, by name or as a TOML file; the flags below go over the settings that it does
not vary. The names: {", ".join(sweeps.names())}."""


@with_settings
def sweep(
    sweep: Annotated[str, Parameter(help=SWEEP)],
    /,
    *,
    jobs: WholeNumber = 1,
    out: Path = Path("runs"),
    storage: str | None = None,
    **flags: str | None,
) -> int:
    """Make many runs, by several processes. The same command again goes on where it was stopped.

    A run is known by the hash of its settings: one that is complete is not made again, in whichever
    sweep of the folder it was; one that was stopped or killed goes on from its checkpoint. Exits
    with 1 if a run failed. Needs Optuna: pip install 'noisin[sweep]'.

    Parameters
    ----------
    jobs
        How many processes; the threads of the machine are divided among them.
    out
        The folder that the folder of the sweep is made in.
    storage
        The database of the Optuna study, such as postgresql+psycopg://host/name for several
        machines; a SQLite file in the folder of the sweep unless given.
    """
    chosen = sweeps.read(sweep, nested(flags))
    require_text("--out", out)
    require_text("--storage", storage)
    if not 1 <= jobs <= 1024:
        raise InvalidValue(f"--jobs must be between 1 and 1024, got {jobs}.")
    if find_spec("optuna") is None:
        raise Unsupported("noisin sweep needs Optuna: pip install 'noisin[sweep]'.")
    from noisin.experiments.sweep import driver

    with SweepBoard(chosen) as board:
        standings = driver.run(chosen, out, jobs, storage, board.show, board.say)
    _print(point_rows(standings))
    tell(f"\nThe records are in {out / chosen.name}.")
    return _failures(standings)


def _failures(standings: Sequence[Standing]) -> int:
    """Say what failed, if anything did."""
    messages = [
        end.message for standing in standings for end in standing.outcomes if end.state == "failed"
    ]
    if not messages:
        return 0
    tell(f"\n{len(messages)} failed, the first of them: {message(messages[0])}")
    tell("The same command tries again.")
    return 1


def _print(rows: Sequence[PointRow]) -> None:
    console = Results()
    if not console.is_terminal:
        console.width = 120
    table = Table("perplexity", "seeds", "valid", "test", "", box=None, pad_edge=False)
    for column in table.columns[1:4]:
        column.justify = "right"
    for row in rows:
        seeds = str(row.valid.n if row.valid else 0)
        table.add_row(row.point, seeds, str(row.valid or "-"), str(row.test or "-"), _remarks(row))
    console.print("\nAt the epochs of the lowest perplexity on valid, noise and dropout off:\n")
    console.print(table)


def _remarks(row: PointRow) -> str:
    """What a reader of the row should know."""
    counts = {
        "still falling": row.unfinished,
        "diverged": row.diverged,
        "pruned": row.pruned,
        "failed": row.failed,
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)
