"""The runs that tuned the arms, by the folders that results/evidence/tune.sh gives them.

``OUT/ARM/tune-NAME-HASH/tuned-HASH``
    A trial of ``noisin tune``.
``OUT/none/...`` and ``OUT/gates/...``
    The runs of the sweeps over learning rates, of the arms that have nothing else to tune.
"""

from __future__ import annotations

from noisin.experiments.records import Run

BY_SWEEPS = ("none", "gates")


def tuned_arm(run: Run) -> str | None:
    """The arm that a run tuned, or None."""
    folder = run.folder.parent
    if folder.name in BY_SWEEPS:
        return folder.name
    return folder.parent.name if folder.name.startswith("tune-") else None
