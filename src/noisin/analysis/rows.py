"""The rows of the table of claims: figures, their errors, and when a row passes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch

FALSE_ALARM_RATE = 1e-5
COMPARISONS = 1000  # at most; half of the rate is theirs, the other half the unbiasedness checks'
Z = NormalDist().inv_cdf(1 - FALSE_ALARM_RATE / 2 / (2 * COMPARISONS))
UNBIASEDNESS_CHECKS = 10
ROUNDING = 1e-10  # what float64 may do to figures of the size of one


@dataclass(frozen=True)
class Row:
    """One claim: what was measured, its standard error (0 if exact), what was expected."""

    id: str
    claim: str
    place: str
    measured: float
    stderr: float
    expected: str
    passed: bool


def figure(value: Any) -> float:
    """A tensor of one entry, or a number, as a float."""
    return float(torch.as_tensor(value).detach())


def exact_row(id: str, claim: str, place: str, error: Any) -> Row:
    """A claim that holds to rounding."""
    value = figure(error)
    return Row(id, claim, place, value, 0.0, "0 to rounding", value < ROUNDING)


def equal_row(id: str, claim: str, place: str, found: Any, stderr: Any, to: float) -> Row:
    """A random figure that equals a number."""
    value, error = figure(found), figure(stderr)
    passed = math.isfinite(error) and abs(value - to) < Z * error
    return Row(id, claim, place, value, error, f"{to:g}", passed)


def positive_row(id: str, claim: str, place: str, found: Any, stderr: Any) -> Row:
    """A random figure that is above zero beyond doubt."""
    value, error = figure(found), figure(stderr)
    return Row(id, claim, place, value, error, "> 0", value > Z * error + ROUNDING)


def worst(found: list[tuple[Any, Any]], to: float) -> tuple[float, float]:
    """Of many figures that should equal a number, the one farthest off in standard errors."""
    pairs = [(figure(value), figure(error)) for value, error in found]
    return max(pairs, key=lambda pair: abs(pair[0] - to) / (pair[1] + ROUNDING))


def least(found: list[tuple[Any, Any]]) -> tuple[float, float]:
    """Of many figures that should be above zero, the least so in standard errors."""
    pairs = [(figure(value), figure(error)) for value, error in found]
    return min(pairs, key=lambda pair: pair[0] / (pair[1] + ROUNDING))
