"""How a run of a sweep has ended, told by the files of its folder alone.

The trainer writes ``summary.json`` when a run is complete. Of the other ends there is a note:

``diverged.json``
    The loss left the finite numbers. The same settings would do so again, so it is over.
``pruned.json``
    Others were better after as many epochs. A sweep that does not prune goes on with it.
``failed.json``
    Anything else, such as a full disk. The next command tries again.

Each tells the ``config`` (the hash of the settings), a ``message``, and the ``epochs`` made.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from noisin._util.lock import Busy, locked
from noisin.errors import InvalidValue
from noisin.experiments import comparison
from noisin.experiments.comparison import Row
from noisin.experiments.records import End
from noisin.training import schemas
from noisin.training.config import RunConfig
from noisin.training.reading import read_object
from noisin.training.record import RunRecord

ENDS: tuple[End, ...] = get_args(End)
DIGITS = 12  # of the hash, in the name of a folder


@dataclass(frozen=True)
class Outcome:
    """How a run stands: ``"open"`` until it has ended in one of the other ways."""

    state: Literal["open", "complete", "diverged", "pruned", "failed"] = "open"
    row: Row | None = None
    message: str = ""

    @property
    def value(self) -> float:
        """The lowest validation perplexity, which a sweep makes small."""
        return math.inf if self.row is None or self.row.valid is None else self.row.valid


def outcome(folder: Path | None, config: RunConfig, session: str, pruning: bool) -> Outcome:
    """How the run of these settings stands.

    Args:
        folder: where it is, or None while it has none.
        config: its settings; what a folder tells about others does not count.
        session: the command at work; an end as ``"failed"`` counts for the command that saw it.
        pruning: whether to have been pruned is an end.
    """
    if folder is None:
        return Outcome()
    record, digest = RunRecord(folder), config.hash()
    if (record.summary or {}).get("config") == digest:
        return Outcome("complete", comparison.best_row(record))
    for state in ENDS:
        note = _read(folder, state)
        counts = {"diverged": True, "pruned": pruning, "failed": note.get("session") == session}
        if note.get("config") == digest and counts[state]:
            return Outcome(state, message=str(note.get("message", "")))
    return Outcome()


def note(folder: Path, state: End, config: RunConfig, message: str, session: str) -> None:
    """Write down how a run has ended, unless another process is at work on it again."""
    record = RunRecord(folder)
    with contextlib.suppress(Busy), locked(folder):
        content = {"config": config.hash(), "message": message, "epochs": len(record.metrics)}
        record.write(f"{state}.json", content | ({"session": session} if state == "failed" else {}))


def forget(folder: Path) -> None:
    """The run goes on, so it has not ended as a note says."""
    for state in ENDS:
        (folder / f"{state}.json").unlink(missing_ok=True)


def find(out: Path, digest: str) -> Path | None:
    """The folder of the run with this hash, in whichever sweep of ``out``."""
    return min(out.glob(f"*/*-{digest[:DIGITS]}"), default=None)


def all_folders(out: Path) -> dict[str, Path]:
    """The folders of all runs in ``out``, by the digits of the hash in their names."""
    found = sorted(out.glob(f"*/*-{'[0-9a-f]' * DIGITS}"), reverse=True)
    return {folder.name[-DIGITS:]: folder for folder in found}


def _read(folder: Path, state: End) -> dict[str, Any]:
    """A note; a damaged one is as good as none, and the run is made again."""
    try:
        return read_object(folder / f"{state}.json", schemas.Note) or {}
    except InvalidValue:
        return {}
