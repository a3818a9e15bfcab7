"""``noisin collect``: the finished records of several machines in one folder."""

from __future__ import annotations

from pathlib import Path

from noisin.cli.arguments import Switch, require_text
from noisin.cli.consoles import tell
from noisin.experiments.sweep.address import require_place_without_secret


def collect(source: str, /, *more: str, out: Path, without_checkpoints: Switch = False) -> int:
    """Copy the finished records of several folders into one. Run it again to add what is new.

    A run is finished if it is complete or has diverged. Nothing is overwritten: two records of the
    same settings with different results are refused, and nothing is copied then.

    Parameters
    ----------
    source
        A folder of runs, or a URL such as s3://bucket/runs.
    more
        More of them.
    out
        The folder to copy to.
    without_checkpoints
        Copy the records only: much less to copy, and enough for tables, figures and reports.
    """
    sources = (source, *more)
    for given in (*sources, out):
        require_text("collect", given)
        require_place_without_secret("collect", str(given))
    from noisin.experiments.gathering import gather

    done = gather(sources, out, checkpoints=not without_checkpoints)
    tell(
        f"{done.copied} copied to {out}, {done.known} there already, {done.unfinished} unfinished."
    )
    return 0
