"""How a run of a sweep has ended, according to the files in its folder alone.

The trainer writes ``summary.json`` when a run is complete. The sweep notes the other ends:

``diverged.json``
    The loss became non-finite. The same settings would diverge again, so the run has ended.
``pruned.json``
    Others were better after as many epochs. A sweep without pruning continues it.
``failed.json``
    Anything else, such as a full disk. The next command tries again.

Each contains ``config`` (the hash of the settings), a ``message``, and the number of ``epochs``.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

from noisin._util.lock import Busy, locked
from noisin.errors import InvalidValue
from noisin.experiments import comparison
from noisin.experiments.comparison import ComparisonRow
from noisin.experiments.records import End
from noisin.tasks.unit import Unit
from noisin.training import schemas
from noisin.training.config import RunConfig
from noisin.training.reading import read_object
from noisin.training.record import RunRecord

ENDS: tuple[End, ...] = get_args(End)
DIGITS = 12  # of the hash, in the name of a folder
_RUNS = "[!.]*/[!.]*-"  # in any sweep; a name with a dot is that of a folder being written


@dataclass(frozen=True)
class Outcome:
    """The state of a run: ``"open"`` until it has ended in one of the other ways."""

    state: Literal["open", "complete", "diverged", "pruned", "failed"] = "open"
    row: ComparisonRow | None = None
    message: str = ""

    @property
    def value(self) -> float:
        """The lowest score on valid, which a search minimizes."""
        return math.inf if self.row is None or self.row.valid is None else self.row.valid

    def to_json(self) -> dict[str, Any]:
        """For other machines, which do not see the folder."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_json`."""
        row = content["row"]
        if row is not None:
            row = ComparisonRow(**{**row, "unit": Unit(**row["unit"])})
        return cls(content["state"], row, content["message"])


def outcome(folder: Path | None, config: RunConfig, session: str, pruning: bool) -> Outcome:
    """The state of the run with these settings.

    Args:
        folder: its folder, or None while it has none.
        config: its settings; notes about other settings do not count.
        session: identifies the command; ``"failed"`` is final only for the command that saw it.
        pruning: whether ``"pruned"`` is final.
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
    """Record how a run has ended, unless another process has started it again."""
    record = RunRecord(folder)
    with contextlib.suppress(Busy), locked(folder):
        content = {"config": config.hash(), "message": message, "epochs": len(record.metrics)}
        record.write(f"{state}.json", content | ({"session": session} if state == "failed" else {}))


def forget(folder: Path) -> None:
    """Remove the notes about the end of a run that is continued."""
    for state in ENDS:
        (folder / f"{state}.json").unlink(missing_ok=True)


def find(out: Path, digest: str) -> Path | None:
    """The folder of the run with this hash, in any sweep of ``out``."""
    return min(out.glob(f"{_RUNS}{digest[:DIGITS]}"), default=None)


def all_folders(out: Path) -> dict[str, Path]:
    """The folders of all runs in ``out``, by the digits of the hash in their names."""
    found = sorted(out.glob(_RUNS + "[0-9a-f]" * DIGITS), reverse=True)
    return {folder.name[-DIGITS:]: folder for folder in found}


def _read(folder: Path, state: End) -> dict[str, Any]:
    """A note. A damaged one is ignored, and the run is made again."""
    try:
        return read_object(folder / f"{state}.json", schemas.EndNote) or {}
    except InvalidValue:
        return {}
