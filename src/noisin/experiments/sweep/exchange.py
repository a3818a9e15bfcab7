"""Records that one machine has and a URL lacks, or the other way round."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from noisin.experiments.sweep.definition import Sweep
from noisin.experiments.sweep.mirror import Mirror
from noisin.experiments.sweep.outcome import DIGITS, all_folders
from noisin.experiments.sweep.standing import Standing

PUBLISHED = ("complete", "diverged", "pruned")  # ends whose records are copied to the URL


def fetch_records(mirror: Mirror, sweep: Sweep, standings: Iterable[Standing], home: Path) -> None:
    """Copy the records of a grid that neither the database nor this machine knows.

    So the database can be lost, as on one machine. Checkpoints of ended runs are not needed here.
    """
    wanted = {run.digest[:DIGITS] for task in sweep.tasks for run in task.runs}
    wanted -= _ended(standings) | set(all_folders(home.parent))
    for name, files in mirror.published().items() if wanted else ():
        if name[-DIGITS:] in wanted:
            record = [file for file in files if not file.startswith("checkpoints/")]
            mirror.fetch(home / name, record)


def publish_rest(mirror: Mirror, standings: Iterable[Standing], home: Path) -> None:
    """Publish what has ended and was not published, because its worker died before it could."""
    ended = _ended(standings)
    for name in mirror.unpublished():
        if name[-DIGITS:] in ended:
            mirror.restore(home / name)
            mirror.publish(home / name)


def _ended(standings: Iterable[Standing]) -> set[str]:
    return {
        run.digest[:DIGITS]
        for standing in standings
        for run, end in standing.runs
        if end.state in PUBLISHED
    }
