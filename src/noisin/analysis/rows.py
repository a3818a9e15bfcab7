"""The rows of the table of claims: values, standard errors, and when a row passes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch

FALSE_ALARM_RATE = 1e-5
COMPARISONS = 1000  # at most; they have half of the rate, the checks of unbiasedness the other half
LEVEL = FALSE_ALARM_RATE / 2 / COMPARISONS  # of one comparison
Z = NormalDist().inv_cdf(1 - LEVEL / 2)
UNBIASEDNESS_CHECKS = 10
CORRECTED = "(corrected)"  # how the place of a claim ends that corrects the paper
ROUNDING = 1e-10  # the rounding of float64 in values of the size of one

Pair = tuple[Any, Any]  # a value and its standard error


@dataclass(frozen=True)
class ClaimRow:
    """One claim: what was measured, its standard error (0 if exact), what was expected."""

    id: str
    claim: str
    place: str
    measured: float
    stderr: float
    expected: str
    passed: bool

    @property
    def corrects(self) -> bool:
        """Whether the claim is a correction of the paper's."""
        return self.place.endswith(CORRECTED)


def figure(value: Any) -> float:
    """A tensor of one entry, or a number, as a float."""
    return float(torch.as_tensor(value).detach())


def mean(samples: torch.Tensor) -> Pair:
    """The mean of independent samples, and its standard error."""
    return samples.mean(), samples.std() / math.sqrt(len(samples))


def difference(a: Pair, b: Pair) -> Pair:
    """The difference of two independent values, and its standard error."""
    return figure(a[0]) - figure(b[0]), math.hypot(figure(a[1]), figure(b[1]))


def ratio(a: Pair, b: Pair) -> Pair:
    """The ratio of two independent values, and its standard error, to first order."""
    value = figure(a[0]) / figure(b[0])
    return value, abs(value) * math.hypot(*(figure(e) / figure(v) for v, e in (a, b)))


def exact(id: str, claim: str, place: str, error: Any) -> ClaimRow:
    """A claim that holds to rounding."""
    value = figure(error)
    return ClaimRow(id, claim, place, value, 0.0, "0 to rounding", value < ROUNDING)


def equal(id: str, claim: str, place: str, found: Sequence[Pair], to: float = 0.0) -> ClaimRow:
    """Estimates that equal a number; the row shows the one most standard errors off."""
    value, error = max(_floats(found), key=lambda pair: abs(pair[0] - to) / (pair[1] + ROUNDING))
    passed = math.isfinite(error) and abs(value - to) < Z * error
    return ClaimRow(id, claim, place, value, error, f"{to:g}", passed)


def near(id: str, claim: str, place: str, found: Sequence[Pair], by: float) -> ClaimRow:
    """Estimated ratios within ``by`` of one; the row shows the one closest to failing."""
    value, error = max(_floats(found), key=lambda pair: (abs(pair[0] - 1) - by) / pair[1])
    passed = abs(value - 1) < by + Z * error and Z * error < 0.15
    return ClaimRow(id, claim, place, value, error, f"1 ± {by:g}", passed)


def off(id: str, claim: str, place: str, found: Pair, by: float) -> ClaimRow:
    """An estimated ratio that differs from one by significantly more than ``by``."""
    ((value, error),) = _floats([found])
    passed = abs(value - 1) > by + Z * error
    return ClaimRow(id, claim, place, value, error, f"off by {by:g}", passed)


def positive(id: str, claim: str, place: str, found: Sequence[Pair]) -> ClaimRow:
    """Estimates significantly above zero; the row shows the least significant one."""
    value, error = min(_floats(found), key=lambda pair: pair[0] / (pair[1] + ROUNDING))
    return ClaimRow(id, claim, place, value, error, "> 0", value > Z * error + ROUNDING)


def at_most(id: str, claim: str, place: str, found: Sequence[Pair], bound: float) -> ClaimRow:
    """Estimates below a bound; the row shows the largest."""
    value, error = max(_floats(found))
    passed = math.isfinite(value) and value < bound + Z * error + ROUNDING
    return ClaimRow(id, claim, place, value, error, f"at most {bound:.3g}", passed)


def _floats(found: Sequence[Pair]) -> list[tuple[float, float]]:
    return [(figure(value), figure(error)) for value, error in found]
