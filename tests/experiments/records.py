"""Records as the trainer writes them, with perplexities of one's choice."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noisin._util.settings import merge
from noisin.training.config import RunConfig
from noisin.training.record import RunRecord

ENVIRONMENT = {
    "versions": {"noisin": "0.1.0", "torch": "2.13.0+cpu"},
    "processor": "a test",
    "threads": 1,
    "data": {"name": "toy", "sha256": "0" * 64, "tokens": [800, 250, 200]},
    "vocabulary": {"sha256": "1" * 64, "words": 12},
}


def line(epoch: int, valid: float | None, **other: Any) -> dict[str, Any]:
    """The metrics of an epoch; train is at half the perplexity, the noisy one at 0.7 of it."""
    known = {
        "epoch": epoch,
        "step": 100 * epoch,
        "tokens": 5000 * epoch,
        "lr": 30.0,
        "noise_std": None,
        "train": valid and 0.7 * valid,
        "train_clean": valid and 0.5 * valid,
        "penalty": None,
        "valid": valid,
        "valid_averaged": None,
        "seconds": 10.0 * epoch,
        "tokens_per_second": 500.0,
    }
    return known | other


def write_run(
    folder: Path,
    valid: Sequence[float | None] = (90.0, 70.0, 80.0),
    *,
    complete: bool = True,
    best: dict[str, Any] | None = None,
    **settings: Any,
) -> RunRecord:
    """A record with these validation perplexities, complete (test is 0.95 of valid) or not."""
    config = RunConfig.parse(merge({"train": {"averaging": "none"}}, settings))
    folder.mkdir(parents=True)
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    (folder / "config.json").write_text(config.to_json())
    lines = [line(i + 1, v) for i, v in enumerate(valid)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(m) + "\n" for m in lines))
    if complete:
        lowest = min(lines, key=lambda m: math.inf if m["valid"] is None else m["valid"])
        test = lowest["valid"] and 0.95 * lowest["valid"]
        summary = lowest | {"weights": "raw", "test": test} | (best or {})
        content = {"epochs": len(lines), "seconds": 61.0, "best": summary}
        (folder / "summary.json").write_text(json.dumps(content))
    return RunRecord(folder)
