"""Records as the trainer writes them, with given scores: perplexities, or nats and counts."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from noisin._util.settings import merge
from noisin.tasks.unit import Unit
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


def score(nats: float | None, count: int = 1000) -> dict[str, Any]:
    """A score as runs since noisin 0.2 have it."""
    return {"nats": nats, "count": count}


def nats_line(epoch: int, valid: float | None, **other: Any) -> dict[str, Any]:
    """The metrics of an epoch in nats; train is 2 nats below valid, the noisy one 1."""
    known = {
        "train": score(None if valid is None else valid - 1),
        "train_clean": score(None if valid is None else valid - 2),
        "valid": score(valid),
    }
    plain = line(epoch, None)
    del plain["penalty"]
    return plain | known | other


def write_run(
    folder: Path,
    valid: Sequence[float | None] = (90.0, 70.0, 80.0),
    *,
    complete: bool = True,
    best: dict[str, Any] | None = None,
    unit: Unit | None = None,
    **settings: Any,
) -> RunRecord:
    """A record with these scores on valid, complete or not.

    Perplexities as noisin 0.1 wrote them, with 0.95 of valid on test; or, with a unit, nats and
    counts as they are written today, with half a nat less than valid on test.
    """
    config = RunConfig.parse(merge({"train": {"averaging": "none"}}, settings))
    folder.mkdir(parents=True)
    environment = ENVIRONMENT | ({} if unit is None else {"unit": asdict(unit)})
    (folder / "environment.json").write_text(json.dumps(environment))
    (folder / "config.json").write_text(config.to_json())
    write = line if unit is None else nats_line
    lines = [write(i + 1, v) for i, v in enumerate(valid)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(m) + "\n" for m in lines))
    if complete:
        i = min(range(len(lines)), key=lambda i: math.inf if (value := valid[i]) is None else value)
        lowest = valid[i]
        if unit is None:
            test = lowest and 0.95 * lowest
        else:
            test = score(None if lowest is None else lowest - 0.5)
        found = lines[i] | {"weights": "raw", "test": test, "checkpoint": i + 1} | (best or {})
        content = {"epochs": len(lines), "seconds": 61.0, "best": found}
        if unit is not None:
            content |= {"ended": "epochs", "raw": found, "averaged": None, "last": lines[-1]}
            content |= {"steps": 300, "tokens": 15000, "parameters": 7, "config": config.hash()}
        (folder / "summary.json").write_text(json.dumps(content))
    return RunRecord(folder)
