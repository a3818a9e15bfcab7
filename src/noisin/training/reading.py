"""Read the JSON files of a record. Errors name the file and what is wrong with it.

Nothing here needs torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from noisin._util.regular import read_regular
from noisin.errors import InvalidValue

DEEPEST = 50  # levels of nesting; more could exhaust the stack of later code
LARGEST_FILE = 2**28  # bytes; a vocabulary of ten million words is smaller
MOST_PROBLEMS = 3  # listed in one message


def parse_json(content: bytes | str) -> Any:
    """Parse JSON; raises ``ValueError`` if it is not UTF-8, not JSON or nested too deeply.

    >>> parse_json('{"epoch": 1}')
    {'epoch': 1}
    """
    text = content if isinstance(content, str) else content.decode()
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if _is_deep(found):
        raise ValueError("it is nested too deeply")
    if "\\ud" in text.lower():  # half of a surrogate pair could not be printed
        json.dumps(found, ensure_ascii=False).encode()
    return found


def read_object(path: Path, schema: type[BaseModel]) -> dict[str, Any] | None:
    """The JSON object in a file, checked against the schema; None if there is no file."""
    try:
        content = parse_json(read_regular(path, LARGEST_FILE))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidValue(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise InvalidValue(
            f"{path} cannot be read: it is damaged ({error}). Restore the whole file."
        ) from None
    if not isinstance(content, dict):
        raise InvalidValue(f"{path} must contain a JSON object, got {content!r:.40}.")
    found = mismatch(content, schema)
    if found:
        raise InvalidValue(f"{path} is damaged: {found} Restore the whole file.")
    return content


def mismatch(content: Mapping[str, Any], schema: type[BaseModel]) -> str:
    """Why values do not match a schema, as sentences; empty if they match."""
    try:
        schema.model_validate(content)
    except ValidationError as error:
        found = [_in_words(dict(item)) for item in error.errors(include_url=False)]
        more = len(found) - MOST_PROBLEMS
        return " ".join(found[:MOST_PROBLEMS]) + (f" There are {more} more." if more > 0 else "")
    return ""


def _in_words(item: dict[str, Any]) -> str:
    """One problem that pydantic found, as a sentence with the dotted name of the value."""
    name = ".".join(str(part) for part in item["loc"])
    if item["type"] == "missing":
        return f"{name} is missing."
    if item["type"] == "value_error":  # raised by a validator of a schema
        return f"{name} {item['ctx']['error']}"
    expected = item["msg"].removeprefix("Input should be ")
    if item["type"] in {"model_type", "dict_type"}:
        expected = "a JSON object"
    return f"{name} must be {expected}, got {item['input']!r:.40}."


def _is_deep(content: Any) -> bool:
    level = [content]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True
