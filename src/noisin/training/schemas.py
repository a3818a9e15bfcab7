"""What the JSON files of a record must hold. Other keys may be there too: versions differ.

``config.json`` is described by :class:`noisin.training.config.RunConfig`.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _amount(value: object) -> object:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None or (known and 0 <= value <= sys.float_info.max):  # type: ignore[operator]
        return value
    raise ValueError(f"must be 0 or more, or null, got {value!r:.60}.")


# JSON has no infinity: null stands for it.
Amount = Annotated[float | None, BeforeValidator(_amount)]
Epoch = Annotated[int, Field(ge=1, le=10**9)]


class _Schema(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)


class MetricsLine(_Schema):
    """A line of ``metrics.jsonl``: an epoch that is over."""

    epoch: Epoch
    train: Amount
    train_clean: Amount
    valid: Amount
    valid_averaged: Amount
    lr: Amount = None
    noise_std: Amount = None
    seconds: Amount = None
    tokens_per_second: Amount = None


class BestLine(_Schema):
    """The best epoch in a summary."""

    epoch: Epoch
    weights: Literal["raw", "averaged"]
    train_clean: Amount
    valid: Amount
    valid_averaged: Amount
    test: Amount


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


class Environment(_Schema):
    """``environment.json``. A record without it can be read, but not continued."""

    data: HashedSource = HashedSource(sha256="")
    vocabulary: HashedSource = HashedSource(sha256="")
    resumed: list[dict[str, Any]] = []


class EndNote(_Schema):
    """``diverged.json``, ``pruned.json`` and ``failed.json``."""

    config: str
    message: str
    session: str = ""
