"""The noise families: their names, parameters and ranges, as data. Nothing here needs torch."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from noisin.errors import InvalidType, InvalidValue

# Gamma, Beta and Chi-square variates beyond this shape are Gaussian to float64 precision and are
# lost to rounding as differences from their mean.
LARGEST_SHAPE = 1e10
LARGEST_MEAN = 1e3  # of biased noise: its factor stays far from the end of any precision


@dataclass(frozen=True)
class Range:
    """An interval of valid values, what the parameter means, and what to do instead."""

    meaning: str
    low: float = 0.0
    high: float = math.inf
    low_included: bool = True
    advice: str = ""

    def __contains__(self, value: float) -> bool:
        above = value >= self.low if self.low_included else value > self.low
        return above and value <= self.high and math.isfinite(value)

    def __str__(self) -> str:
        left = "[" if self.low_included else "("
        right = ")" if math.isinf(self.high) else "]"
        return f"{left}{self.low:g}, {self.high:g}{right}"


@dataclass(frozen=True)
class Spread(Range):
    """The range of a gamma, and how gamma relates to the variance of the noise."""

    std: Callable[[float], float] = float  # of the noise with this gamma
    variance: Callable[[float], float] = float  # of the noise with this gamma
    gamma: Callable[[float], float] = float  # of the noise with this variance


_STD = Spread(
    "the standard deviation of the noise",
    advice="Use gamma=0 for no noise.",
    variance=lambda gamma: gamma * gamma,
    gamma=math.sqrt,
)
_VARIANCE = Spread("the variance of the noise", high=LARGEST_SHAPE, std=math.sqrt)
_KEEP_PROBABILITY = Spread(
    "the keep probability",
    low_included=False,
    high=1.0,
    advice="To ask for a variance, use Bernoulli.from_variance({value}).",
    std=lambda gamma: math.sqrt((1 - gamma) / gamma),
    variance=lambda gamma: (1 - gamma) / gamma,
    gamma=lambda variance: 1 / (1 + variance),
)
_DEGREES = replace(_VARIANCE, meaning="the variance (degrees of freedom)")
_ALPHA = Range("the shape", low_included=False, high=LARGEST_SHAPE, advice="The paper uses 2.")

# The list of the families: each has one class of this name in noise/families.py. Nothing else
# enumerates them.
RANGES: Mapping[str, Mapping[str, Range]] = {
    "Gaussian": {"gamma": _STD},
    "Bernoulli": {"gamma": _KEEP_PROBABILITY},
    "Gamma": {"gamma": _STD, "alpha": _ALPHA},
    "Gumbel": {"gamma": _STD},
    "Laplace": {"gamma": _STD},
    "Logistic": {"gamma": _STD},
    "Beta": {"gamma": _VARIANCE, "alpha": _ALPHA},
    "ChiSquare": {"gamma": _DEGREES},
}
# The names of the classes by the names that configs use, such as "chi-square" for ChiSquare.
LAWS: Mapping[str, str] = {re.sub(r"(?<!^)(?=[A-Z])", "-", law).lower(): law for law in RANGES}


def spread(family: str) -> Spread:
    """The meaning and the range of the gamma of a family."""
    found = RANGES[family]["gamma"]
    assert isinstance(found, Spread)
    return found


def _number(family: str, parameter: str, value: object) -> float:
    try:
        if isinstance(value, bool | str):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        raise InvalidType(
            f"noise.{family}: {parameter} must be a number, got {value!r} "
            f"({type(value).__name__}). Pass a float, e.g. {parameter}=0.5."
        ) from None


def check_variance(family: str, value: object) -> float:
    """Return ``value`` as a float if some member of ``family`` has this variance, else raise."""
    number = _number(family, "variance", value)
    if not 0 <= number < math.inf:
        raise InvalidValue(
            f"noise.{family}.from_variance: a variance is finite and not negative, got {number:g}. "
            f"Pass the square of the standard deviation that you want."
        )
    return number


def check(family: str, parameter: str, value: object) -> float:
    """Return ``value`` as a float if it is a valid ``parameter`` of ``family``, else raise.

    >>> check("Bernoulli", "gamma", 1.1)
    Traceback (most recent call last):
    noisin.errors.InvalidValue: noise.Bernoulli: gamma is the keep probability and must lie in (0, 1], got 1.1. To ask for a variance, use Bernoulli.from_variance(1.1).
    """  # noqa: E501 - the message is one line, as its reader sees it
    number = _number(family, parameter, value)
    valid = RANGES[family][parameter]
    if number not in valid:
        # What exceeds a bound from above may be meant as something else, such as a variance.
        advice = valid.advice.format(value=f"{number:g}") if number > valid.low else ""
        raise InvalidValue(
            f"noise.{family}: {parameter} is {valid.meaning} and must lie in {valid}, "
            f"got {number:g}. {advice}".rstrip()
        )
    return number


def std(family: str, gamma: float) -> float:
    """The standard deviation of the noise with this gamma, as ``noise.<family>(gamma).std`` has it.

    >>> std("Gaussian", 1.1), std("Bernoulli", 0.5), std("ChiSquare", 0.25)
    (1.1, 1.0, 0.5)
    """
    return spread(family).std(check(family, "gamma", gamma))


def gamma(family: str, std: float) -> float:
    """The gamma of the noise with this standard deviation, the inverse of :func:`std`.

    >>> gamma("Gaussian", 1.1), gamma("Bernoulli", 1.0), gamma("ChiSquare", 0.5)
    (1.1, 0.5, 0.25)
    """
    return spread(family).gamma(check_variance(family, std**2))
