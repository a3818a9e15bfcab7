"""Paired tests, equivalence and Holm's correction, against scipy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from noisin.errors import InvalidValue
from noisin.experiments.intervals import two_sided
from noisin.experiments.paired import Paired, holm

MARGIN = 0.01


def arms(
    shift: float, spread: float, n: int = 8, seed: int = 0
) -> tuple[dict[int, float], dict[int, float]]:
    """Two arms whose difference has this mean, and about this spread."""
    rng = np.random.default_rng(seed)
    common, own = 4 + rng.normal(0, 0.1, n), rng.normal(0, spread, n)
    one = common + shift + own - own.mean()
    return dict(enumerate(one.tolist())), dict(enumerate(common.tolist()))


@pytest.mark.parametrize("degrees", [1, 2, 3, 7, 8, 40])
@pytest.mark.parametrize("t", [0.0, 0.3, -1.7, 5.0, math.inf])
def test_two_sided(t: float, degrees: int) -> None:
    assert two_sided(t, degrees) == pytest.approx(2 * stats.t.sf(abs(t), degrees), abs=1e-14)


@pytest.mark.parametrize("seed", range(5))
def test_p_values(seed: int) -> None:
    one, other = arms(0.004, 0.01, seed=seed)
    a, b = [*one.values()], [*other.values()]
    found = Paired.of(one, other, MARGIN)
    assert found.p == pytest.approx(stats.ttest_rel(a, b).pvalue)
    shifted = np.array(a) - np.array(b)
    above = stats.ttest_1samp(shifted, -MARGIN, alternative="greater").pvalue
    below = stats.ttest_1samp(shifted, MARGIN, alternative="less").pvalue
    assert found.p_apart == pytest.approx(max(above, below))
    low, high = stats.ttest_rel(a, b).confidence_interval()
    assert (found.difference.low, found.difference.high) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("shift", "spread", "verdict"),
    [
        (-0.05, 0.01, "lower"),
        (0.05, 0.01, "higher"),
        (0.0, 0.002, "equal"),
        (0.0, 0.05, "not decided"),
    ],
)
def test_verdicts(shift: float, spread: float, verdict: str) -> None:
    found = Paired.of(*arms(shift, spread), MARGIN)
    assert found.verdict(found.p) == verdict


def test_a_difference_that_correction_takes_away() -> None:
    found = Paired.of(*arms(-0.05, 0.05), MARGIN)
    assert found.p < 0.05
    assert found.verdict(found.p) == "lower"
    assert found.verdict(1.0) == "not decided"


def test_only_common_seeds_count() -> None:
    one, other = arms(-0.05, 0.01)
    assert Paired.of(one | {99: 1e9}, other, MARGIN) == Paired.of(one, other | {77: -1e9}, MARGIN)
    with pytest.raises(InvalidValue, match=r"two common seeds or more, got \[1\]"):
        Paired.of({1: 1.0, 2: 2.0}, {1: 1.0, 3: 2.0}, MARGIN)


def test_equal_values() -> None:
    same = dict.fromkeys(range(4), 5.0)
    found = Paired.of(same, same, MARGIN)
    assert (found.p, found.p_apart, found.verdict(found.p)) == (1.0, 0.0, "equal")
    far = Paired.of(same, dict.fromkeys(range(4), 6.0), MARGIN)
    assert (far.p, far.p_apart, far.verdict(far.p)) == (0.0, 1.0, "lower")


def test_the_rate_of_false_alarms_is_that_of_holm() -> None:
    """Five questions whose answer is no: at most one family in twenty has a false yes."""
    rng, alarms, families = np.random.default_rng(1), 0, 400
    for _ in range(families):
        draws = rng.normal(0, 0.01, (5, 8))
        ps = [Paired.of(dict(enumerate(d)), dict.fromkeys(range(8), 0.0), MARGIN).p for d in draws]
        alarms += min(holm(ps)) < 0.05
    assert alarms <= stats.binom.ppf(1 - 1e-6, families, 0.05)
    assert alarms >= stats.binom.ppf(1e-6, families, 0.05 / 5), "it is no stricter than Bonferroni"


def test_holm() -> None:
    assert holm([]) == []
    assert holm([0.2]) == [0.2]
    assert holm([0.5, 0.5, 0.001]) == pytest.approx([1.0, 1.0, 0.003])
