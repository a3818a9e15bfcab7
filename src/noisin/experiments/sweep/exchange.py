"""Records that one machine has and a URL lacks, or the other way round."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from noisin.experiments.sweep.definition import Sweep
from noisin.experiments.sweep.mirror import SUMMARY, Mirror
from noisin.experiments.sweep.outcome import DIGITS, all_folders
from noisin.experiments.sweep.standing import Standing

# The ends whose records are copied to the URL, and the file that states each of them.
PUBLISHED = {"complete": SUMMARY, "diverged": "diverged.json", "pruned": "pruned.json"}


def fetch_records(mirror: Mirror, sweep: Sweep, standings: Iterable[Standing], home: Path) -> None:
    """Copy the records of a grid that neither the database nor this machine knows.

    So the database can be lost, as on one machine. Checkpoints are needed here only of pruned runs,
    which a sweep without pruning continues.
    """
    wanted = {run.digest[:DIGITS] for task in sweep.tasks for run in task.runs}
    wanted -= _ended(standings).keys() | all_folders(home.parent).keys()
    for name, files in mirror.published().items() if wanted else ():
        if name[-DIGITS:] in wanted:
            is_pruned = PUBLISHED["pruned"] in files and SUMMARY not in files
            record = [file for file in files if is_pruned or not file.startswith("checkpoints/")]
            mirror.fetch(home / name, record)


def publish_rest(mirror: Mirror, standings: Iterable[Standing], home: Path) -> None:
    """Publish what has ended and was not published, because its worker died before it could.

    A working copy may be that of a worker that was overtaken. It is published only if it has ended
    as the database says, and never in place of a record that has.
    """
    ends, published = _ended(standings), mirror.published()
    for name in mirror.unpublished():
        known, end = published.get(name, []), ends.get(name[-DIGITS:])
        if SUMMARY in known:
            mirror.discard(name)
        elif end is not None and end not in known and mirror.restore(home / name, end):
            mirror.publish(home / name)


def _ended(standings: Iterable[Standing]) -> dict[str, str]:
    """The runs that have ended, by the digits of their names: the file that states how."""
    return {
        run.digest[:DIGITS]: PUBLISHED[end.state]
        for standing in standings
        for run, end in standing.runs
        if end.state in PUBLISHED
    }
