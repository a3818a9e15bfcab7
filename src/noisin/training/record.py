"""The record of a run: a folder of plain files, readable without torch.

``config.json``
    All settings, from which the run can be repeated.
``environment.json``
    Versions, processor, threads, the unit of the scores, and hashes of the data, the vocabulary and
    the weights that the run started from, if they are another run's.
``vocabulary.json``
    The words, so that the model can be used without the data.
``metrics.jsonl``
    One line per epoch; see :mod:`noisin.training.scores`.
``summary.json``
    How it ended, once the run is complete; see :mod:`noisin.training.summary`.
``checkpoints/``
    See :mod:`noisin.training.checkpoint`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from noisin._util import arguments, lock
from noisin._util.files import write_atomically, writing
from noisin._util.regular import open_regular, read_regular
from noisin.data import Vocabulary
from noisin.errors import InvalidValue, Unavailable
from noisin.tasks.unit import PERPLEXITY, Unit
from noisin.training import schemas
from noisin.training.config import RunConfig
from noisin.training.reading import LARGEST_FILE, mismatch, parse_json, read_object
from noisin.training.runtime.environment import require_threads

HASHED = ("data", "vocabulary", "start")  # entries of environment.json that have a sha256
TIMES = ("seconds", "tokens_per_second")  # entries of metrics that differ between equal runs


class RunRecord:
    """The record in a folder; its files are read on each access."""

    def __init__(self, folder: str | Path) -> None:
        arguments.path("RunRecord: folder", folder)
        self.folder = Path(folder)

    def __repr__(self) -> str:
        return f"RunRecord({str(self.folder)!r})"

    @property
    def exists(self) -> bool:
        """Whether there is a run in the folder."""
        with suppress(OSError):  # the name is not valid for a file
            return (self.folder / "config.json").exists()
        return False

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.folder / "checkpoints"

    @property
    def config(self) -> RunConfig:
        """The settings of the run."""
        if not self.exists:
            raise InvalidValue(
                f"{self.folder} is not a run: it has no config.json. Name the folder of a run of "
                f"noisin train."
            )
        return RunConfig.from_json(self.folder / "config.json")

    @property
    def environment(self) -> dict[str, Any]:
        """The software, the hardware and the data of the run."""
        return read_object(self.folder / "environment.json", schemas.Environment) or {}

    @property
    def unit(self) -> Unit:
        """The unit of the scores; perplexity per word if the record does not name one."""
        known = self.environment.get("unit")
        return PERPLEXITY if known is None else Unit(known["name"], known["per"])

    @property
    def products(self) -> str:
        """The libraries of the products of the run; empty, for the default, before noisin 0.2."""
        return str(self.environment.get("products", ""))

    @property
    def threads(self) -> int:
        """The number of threads that the run uses, on any machine."""
        threads = self.environment.get("threads")
        path = self.folder / "environment.json"
        return require_threads(str(path), threads, "Restore the whole file.")

    @property
    def identity(self) -> dict[str, str]:
        """Hashes that identify the run: of its settings (without limits), data and vocabulary."""
        known = self.environment
        hashes = {name: known[name]["sha256"] for name in HASHED if name in known}
        if not hashes.get("data"):
            raise InvalidValue(
                f"{self.folder / 'environment.json'} does not contain the hash of the data. "
                f"Restore the whole file."
            )
        return {"config": self.config.hash(limits=False), **hashes}

    @property
    def vocabulary(self) -> Vocabulary:
        """The words of the model."""
        path = self.folder / "vocabulary.json"
        try:
            found = Vocabulary.from_json(read_regular(path, LARGEST_FILE).decode())
            sha256 = found.sha256
        except OSError as error:
            raise Unavailable(f"{path}: cannot be read: {error.strerror}.") from None
        except ValueError as error:
            raise InvalidValue(f"{path}: is damaged: {error}") from None
        if sha256 != self.identity["vocabulary"]:
            raise InvalidValue(
                f"{path}: is not the vocabulary that the model was trained with: its sha256 is "
                f"{sha256}, and environment.json has {self.identity['vocabulary']}. Restore the "
                f"original file."
            )
        return found

    @property
    def summary(self) -> dict[str, Any] | None:
        """How the run ended; None if it is not complete."""
        return read_object(self.folder / "summary.json", schemas.Summary)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One dict per epoch. An incomplete last line is ignored."""
        return self._lines(self._metrics_content())

    def metrics_until(self, offset: int) -> list[dict[str, Any]]:
        """The lines that ``metrics.jsonl`` had when it ended at ``offset``."""
        content = self._metrics_content()
        if len(content) < offset:
            raise InvalidValue(
                f"training: {self.folder / 'metrics.jsonl'} has {len(content)} bytes and had "
                f"{offset} when the checkpoint was made. Restore the whole file, or start again in "
                f"another folder."
            )
        return self._lines(content[:offset])

    def _metrics_content(self) -> bytes:
        path = self.folder / "metrics.jsonl"
        try:
            return read_regular(path, LARGEST_FILE)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise InvalidValue(f"{path} cannot be read: {error.strerror}.") from None

    def _lines(self, content: bytes) -> list[dict[str, Any]]:
        lines = content.splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        return [self._line(i + 1, line) for i, line in enumerate(lines)]

    def _line(self, epoch: int, line: bytes) -> dict[str, Any]:
        place = f"{self.folder / 'metrics.jsonl'} is damaged: line {epoch}"
        try:
            found = parse_json(line)
        except ValueError as error:
            raise InvalidValue(f"{place}: {error}. Restore the whole file.") from None
        if not isinstance(found, dict) or found.get("epoch") != epoch:
            raise InvalidValue(f"{place} must be of epoch {epoch}, got {found!r:.60}.")
        problem = mismatch(found, schemas.MetricsLine)
        if problem:
            raise InvalidValue(f"{place}: {problem} Restore the whole file.")
        return found

    # Writing, for the trainer

    def make_folder(self) -> None:
        """Create the folder, or check that it is empty or contains a run."""
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        others = [entry.name for entry in self.folder.iterdir() if not _is_ours(entry.name)]
        if others and not self.exists:
            raise InvalidValue(
                f"training: {self.folder} contains {min(others)!r} and is not a run. Choose a "
                f"folder that is new or empty."
            )

    def make_checkpoints(self) -> None:
        """Create the folder of the checkpoints. If it is missing, they were deleted."""
        with writing(self.checkpoints):
            self.checkpoints.mkdir(exist_ok=True)

    def write(self, name: str, content: str | Mapping[str, Any]) -> None:
        """Write one of the files atomically."""
        text = content if isinstance(content, str) else json.dumps(finite(content), indent=2)
        write_atomically(self.folder / name, (text.rstrip("\n") + "\n").encode())

    def remove_summary(self) -> None:
        """Remove the summary of a run that is continued."""
        with writing(self.folder / "summary.json"):
            (self.folder / "summary.json").unlink(missing_ok=True)

    def append(self, metrics: Mapping[str, Any]) -> int:
        """Append a line to ``metrics.jsonl``; return the new size of the file."""
        path = self.folder / "metrics.jsonl"
        with writing(path), open_regular(path, "ab") as file:
            file.write((json.dumps(finite(metrics), allow_nan=False) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def cut_metrics(self, offset: int) -> None:
        """Truncate ``metrics.jsonl`` at ``offset``; the continued run writes the rest again."""
        path = self.folder / "metrics.jsonl"
        with writing(path), open_regular(path, "ab") as file:
            file.truncate(offset)
            os.fsync(file.fileno())


def _is_ours(name: str) -> bool:
    """Whether a run writes this file before ``config.json``, so that a killed one may leave it."""
    ours = (lock.NAME, "environment.json", "vocabulary.json", "metrics.jsonl")
    return name in ours or name.startswith(".new-")


def finite(value: Any) -> Any:
    """Replace infinity and nan, which JSON does not have, by null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
