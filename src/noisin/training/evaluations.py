"""``evaluations.jsonl`` in the folder of a run: how its model scored, a line for each evaluation.

Lines are only ever added. Nothing here needs torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from noisin._util.files import writing
from noisin._util.regular import open_regular, read_regular
from noisin.errors import InvalidValue
from noisin.training import schemas
from noisin.training.reading import LARGEST_FILE, mismatch, parse_json
from noisin.training.record import finite

NAME = "evaluations.jsonl"


def read(folder: Path) -> list[dict[str, Any]]:
    """The evaluations of a run, the oldest first."""
    return _parsed(folder / NAME, _content(folder / NAME))


def add(folder: Path, evaluation: Mapping[str, Any]) -> None:
    """Add an evaluation to those of a run; raises if their file is damaged."""
    path = folder / NAME
    content = _content(path)
    _parsed(path, content)
    line = json.dumps(finite(evaluation), allow_nan=False) + "\n"
    if content and not content.endswith(b"\n"):
        line = "\n" + line
    with writing(path), open_regular(path, "ab") as file:
        file.write(line.encode())  # in one piece, also beside another process
        file.flush()
        os.fsync(file.fileno())


def kind_of(evaluation: Mapping[str, Any], samples: bool = False) -> str:
    """The heading of an evaluation in a table: what is used beside the weights as trained.

    A temperature is a setting of a cache or an ensemble, and a kind of its own without them.
    ``samples`` adds how many were drawn.

    >>> kind_of({"method": "exact"}), kind_of({"method": "exact", "cache": {}, "dynamic": {}})
    ('static', 'cache + dynamic')
    >>> kind_of({"method": "arithmetic"}), kind_of({"method": "exact", "temperature": 1.1})
    ('arithmetic', 'temperature')
    >>> kind_of({"method": "iwae", "K": 16}, samples=True)
    'iwae 16'
    """
    drawn = f" {evaluation['K']}" if samples and evaluation.get("K") is not None else ""
    parts = [] if evaluation["method"] == "exact" else [f"{evaluation['method']}{drawn}"]
    parts += [name for name in ("cache", "dynamic") if evaluation.get(name) is not None]
    if evaluation.get("unknown"):
        parts.append(f"{evaluation['unknown']:g} of the inputs unknown")
    usual = "static" if evaluation.get("temperature", 1) == 1 else "temperature"
    return " + ".join(parts) or usual


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, LARGEST_FILE)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InvalidValue(f"{path} cannot be read: {error.strerror}.") from None


def _parsed(path: Path, content: bytes) -> list[dict[str, Any]]:
    return [_line(path, i + 1, line) for i, line in enumerate(content.splitlines())]


def _line(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        found = parse_json(line)
        problem = mismatch(found, schemas.EvaluationLine)
    except ValueError as error:
        problem, found = f"{error}.", None
    if problem or not isinstance(found, dict):
        raise InvalidValue(
            f"{path} is damaged: line {number}: {problem} Restore the whole file, or delete the "
            f"line."
        )
    return found
