"""What two equal runs have in common, as a hash: on other machines their times differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from noisin._util.files import sha256
from noisin.training.record import TIMES, RunRecord


def fingerprint(record: RunRecord) -> str:
    """The hash of the settings, the metrics and the summary of a run, without times."""
    content = [record.config.hash(), record.identity, record.metrics, record.summary]
    return sha256(json.dumps(_without_times(content), sort_keys=True).encode())


def _without_times(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_times(item) for name, item in value.items() if name not in TIMES}
    return [_without_times(item) for item in value] if isinstance(value, list) else value
