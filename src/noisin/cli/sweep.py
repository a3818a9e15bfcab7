"""``noisin sweep``: many runs with several processes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.text import Text

from noisin._util.wording import message
from noisin.cli.arguments import Switch, WholeNumber, require_text
from noisin.cli.board import SweepBoard
from noisin.cli.consoles import new_table, show_table, tell
from noisin.cli.plan import show_sweep
from noisin.cli.settings import nested, with_settings
from noisin.errors import InvalidValue, Unsupported
from noisin.experiments import sweep as sweeps
from noisin.experiments.sweep.address import (
    VARIABLE,
    require_no_secret,
    require_place_without_secret,
)
from noisin.experiments.sweep.standing import PointRow, Standing, point_rows
from noisin.tasks.unit import common

if TYPE_CHECKING:
    from noisin.experiments.sweep.engine import Engine

SWEEP = f"""The sweep, by name or as a TOML file; the flags below override the settings that it does
not vary. The names: {", ".join(sweeps.names())}."""


@with_settings
def sweep(
    sweep: Annotated[str, Parameter(help=SWEEP)],
    /,
    *,
    jobs: WholeNumber = 1,
    out: str = "runs",
    storage: str | None = None,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    dry_run: Switch = False,
    **flags: str | None,
) -> int:
    """Make many runs with several processes. The same command continues a sweep that was stopped.

    A run is identified by the hash of its settings: a complete run is not made again, whichever
    sweep of the folder made it; a run that was stopped or killed continues from its checkpoint.
    Exits with 1 if a run failed. Needs Optuna: pip install 'noisin[sweep]'.

    Parameters
    ----------
    jobs
        The number of workers, which share the threads of the machine or of the cluster.
    out
        The folder in which the folder of the sweep is created, or a URL such as s3://bucket/runs
        for machines that share no folder.
    storage
        The database of the sweep, such as postgresql+psycopg://user@host/name for several
        machines; by default the variable NOISIN_STORAGE, which may contain the password, or else a
        SQLite file in the folder of the sweep.
    engine
        Where the workers run: as processes on this machine, or on a Ray cluster, which needs
        Ray: pip install 'noisin[ray]'.
    address
        The address of a running Ray cluster, such as 10.0.0.1:6379, or auto for that of this
        machine; by default RAY_ADDRESS, or a new cluster on this machine for this command alone.
    dry_run
        Show what would be trained, and train nothing.
    """
    chosen = sweeps.read(sweep, nested(flags))
    require_text("--out", out)
    require_text("--storage", storage)
    require_text("--address", address)
    require_no_secret(
        "--storage",
        storage,
        f"Set {VARIABLE} to the whole address, or use PGPASSWORD or ~/.pgpass.",
    )
    require_place_without_secret("--out", out)
    if not 1 <= jobs <= 1024:
        raise InvalidValue(f"--jobs must be between 1 and 1024, got {jobs}.")
    if find_spec("optuna") is None:
        raise Unsupported("noisin sweep needs Optuna: pip install 'noisin[sweep]'.")
    if dry_run:
        show_sweep(chosen, Path(out), jobs)
        return 0
    from noisin.experiments.sweep import driver

    with _engine(engine, address) as workers, SweepBoard(chosen) as board:
        standings = driver.run(chosen, out, jobs, storage, board.show, board.say, workers)
    _print(point_rows(standings))
    tell(f"\nThe records are in {out.rstrip('/')}/{chosen.name}.")
    return _failures(standings)


def _engine(name: str, address: str | None) -> AbstractContextManager[Engine]:
    """What starts the workers."""
    if name == "local":
        from noisin.experiments.sweep.engine import LocalEngine

        if address is not None:
            raise InvalidValue("--address is that of a Ray cluster. Add --engine ray.")
        return nullcontext(LocalEngine())
    if find_spec("ray") is None:
        raise Unsupported("noisin sweep --engine ray needs Ray: pip install 'noisin[ray]'.")
    from noisin.experiments.sweep.ray_engine import RayEngine

    return RayEngine(address, tell)


def _failures(standings: Sequence[Standing]) -> int:
    """Report what failed, if anything did."""
    messages = [
        end.message for standing in standings for end in standing.outcomes if end.state == "failed"
    ]
    if not messages:
        return 0
    tell(f"\n{len(messages)} failed, the first of them: {message(messages[0])}")
    tell("The same command tries again.")
    return 1


def _print(rows: Sequence[PointRow]) -> None:
    unit = common(row.unit for row in rows if row.unit is not None)
    table = new_table(unit, "seeds", "valid", "test", "", left=(0, 4))
    for row in rows:
        seeds = str(row.valid.n if row.valid else 0)
        scores = row.shown(row.valid), row.shown(row.test)
        table.add_row(Text(row.point), seeds, *scores, _remarks(row))
    tell(f"\nAt the epochs of the lowest {unit} on valid, noise and dropout off:\n")
    show_table(table)


def _remarks(row: PointRow) -> str:
    """How the runs of a point ended, where they are not just complete."""
    counts = {
        "still falling": row.unfinished,
        "diverged": row.diverged,
        "pruned": row.pruned,
        "failed": row.failed,
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)
