"""What the JSON files of a record must contain. Other keys are allowed: versions differ.

``config.json`` is described by :class:`noisin.training.config.RunConfig`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

LARGEST_COUNT = 10**18


def _is_number(value: object) -> bool:
    """Whether a JSON value is a finite number; the comparison is false for NaN."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and abs(value) <= sys.float_info.max  # type: ignore[arg-type]


def _amount(value: object) -> object:
    if value is None or (_is_number(value) and value >= 0):  # type: ignore[operator]
        return value
    raise ValueError(f"must be 0 or more, or null, got {value!r:.60}.")


def _signed(value: object) -> object:
    if value is None or _is_number(value):
        return value
    raise ValueError(f"must be a finite number, or null, got {value!r:.60}.")


def _score(value: object) -> object:
    """A perplexity of noisin 0.1, or nats per target, which may be negative, and a count."""
    if not isinstance(value, Mapping):
        return _amount(value)
    nats, count = value.get("nats", ""), value.get("count")
    whole = isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= LARGEST_COUNT
    if whole and (nats is None or _is_number(nats)):
        return value
    raise ValueError(
        f"must have nats, a finite number or null, and count, a positive whole number, got "
        f"{value!r:.60}."
    )


# JSON has no infinity; null represents it.
Amount = Annotated[float | None, BeforeValidator(_amount)]
Signed = Annotated[float | None, BeforeValidator(_signed)]
RecordedScore = Annotated[Any, BeforeValidator(_score)]
Epoch = Annotated[int, Field(ge=1, le=10**9)]


class _Schema(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)


class MetricsLine(_Schema):
    """A line of ``metrics.jsonl``: an epoch that has ended."""

    epoch: Epoch
    train: RecordedScore
    train_clean: RecordedScore
    valid: RecordedScore
    valid_averaged: RecordedScore
    terms: dict[str, Signed] = {}
    measured: dict[str, Signed] = {}
    lr: Amount = None
    noise_std: Amount = None
    seconds: Amount = None
    tokens_per_second: Amount = None


class BestLine(_Schema):
    """The best epoch in a summary."""

    epoch: Epoch
    weights: Literal["raw", "averaged"]
    train_clean: RecordedScore
    valid: RecordedScore
    valid_averaged: RecordedScore
    test: RecordedScore


class Summary(_Schema):
    """``summary.json``. Since noisin 0.2 it has the best raw weights and the best average too."""

    best: BestLine
    raw: BestLine | None = None
    averaged: BestLine | None = None
    epochs: Epoch
    seconds: Annotated[float, Field(ge=0, le=1e12)]
    config: str = ""


class HashedSource(_Schema):
    """A text or a vocabulary, as ``environment.json`` identifies it."""

    sha256: str


class RecordedUnit(_Schema):
    """The unit of the scores, as ``environment.json`` names it."""

    name: Literal["perplexity", "nats", "bits"]
    per: Annotated[str, Field(min_length=1, max_length=60)]


class Environment(_Schema):
    """``environment.json``. A record without it can be read, but not continued."""

    data: HashedSource = HashedSource(sha256="")
    vocabulary: HashedSource = HashedSource(sha256="")
    start: HashedSource = HashedSource(sha256="")
    unit: RecordedUnit = RecordedUnit(name="perplexity", per="word")
    resumed: list[dict[str, Any]] = []


class MeasuredCalibration(_Schema):
    """How far the likeliest word is from being right as often as it is said to be."""

    error: Annotated[float, Field(ge=0, le=1)]


class EvaluationLine(_Schema):
    """A line of ``evaluations.jsonl``."""

    split: Literal["train", "valid", "test"]
    method: Annotated[str, Field(min_length=1, max_length=60)]
    weights: Literal["raw", "averaged"]
    checkpoint: Literal["best", "last"]
    epoch: Annotated[int, Field(ge=0, le=10**9)]
    nats: Signed
    count: Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
    seconds: Amount
    K: Annotated[int, Field(ge=1, le=LARGEST_COUNT)] | None = None
    temperature: Annotated[float, Field(gt=0)] = 1.0
    calibration: MeasuredCalibration | None = None
    cache: dict[str, Any] | None = None
    dynamic: dict[str, Any] | None = None
    unknown: Annotated[float, Field(ge=0, lt=1)] = 0.0


class EndNote(_Schema):
    """``diverged.json``, ``pruned.json`` and ``failed.json``."""

    config: str
    message: str
    session: str = ""
