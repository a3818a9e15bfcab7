"""``--dry-run``: what a command would train, without training or recording anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from noisin.cli.consoles import new_table, show_table, tell, tell_sentences
from noisin.cli.progress import header
from noisin.experiments.sweep.definition import Sweep, SweepRun
from noisin.training.config import RunConfig
from noisin.training.record import RunRecord

if TYPE_CHECKING:
    from noisin.training.runtime.progress import RunOutline

NOTHING = "Nothing is trained. Without --dry-run:"


def show_runs(runs: Mapping[Path, RunConfig]) -> None:
    """The runs of ``noisin train``, each with its folder."""
    from noisin.training.from_config import outline
    from noisin.training.resume import is_complete

    outlines = [outline(config, folder) for folder, config in runs.items()]  # refuses first
    tell(f"{NOTHING}\n")
    for found in outlines:
        record = RunRecord(found.folder)
        state = "complete" if is_complete(record, found.config) else "not complete"
        tell_sentences(header(found))
        tell(f"  in {found.folder} ({state if record.exists else 'new'})")


def show_sweep(sweep: Sweep, out: Path, jobs: int) -> None:
    """The runs of ``noisin sweep`` in a table; of a search, what it draws is not known yet."""
    from noisin.experiments.sweep.engine import LocalEngine

    if sweep.search is None:
        runs = [run for task in sweep.tasks for run in task.runs]
    else:
        runs = [run for values in sweep.search.examples() for run in sweep.searched(values).runs]
    rows = [(_outline(run, out), _state(sweep, run, out)) for run in runs]
    threads = LocalEngine().threads(jobs)
    tell(f"{NOTHING}\n")
    table = new_table("run", "parameters", "device", "epochs", "", left=(0, 4))
    for run, (found, state) in zip(runs, rows, strict=True):
        epochs = str(found.config.train.epochs)
        table.add_row(Text(run.name), f"{found.parameters:,}", found.device, epochs, state)
    show_table(table)
    count = sweep.count * sweep.runs_per_task
    if sweep.search is not None:
        tell_sentences(
            f"\nThe table has the ends of the search, which draws {sweep.search.trials} points: "
            f"{count} runs in {out / sweep.name}."
        )
    else:
        done = sum(state == "complete" for _, state in rows)
        tell(f"\n{count} runs in {out / sweep.name}, of which {done} are complete.")
    tell(f"{jobs} at a time, with {threads} thread{'' if threads == 1 else 's'} each at most.")


def _outline(run: SweepRun, out: Path) -> RunOutline:
    from noisin.training.from_config import outline

    # In a folder that does not exist: the sweep chooses one for a run when it starts it.
    return replace(outline(run.config, out / f"{run.name}-{run.digest}"), folder=Path(run.name))


def _state(sweep: Sweep, run: SweepRun, out: Path) -> str:
    from noisin.experiments.sweep.outcome import find, outcome

    folder = find(out, run.digest)
    found = outcome(folder, run.config, "", sweep.pruning is not None)
    if found.state != "open":
        return found.state
    return "new" if folder is None else "to be continued"
