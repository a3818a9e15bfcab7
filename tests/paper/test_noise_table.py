"""The paper's noise table, row by row: E and Var of the standard and of the scaled noise."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from noisin import noise
from noisin.experiments.paper import results

DELTA = 0.5772156649015329
GAMMA, ALPHA = 0.7, 2.5

# family: (law of eta, E(eta), Var(eta), eps as a function of eta, E(eps) as printed, ours)
ROWS = {
    "gaussian": (
        *(stats.norm(0, GAMMA), 0, GAMMA**2, lambda eta: eta, 0),
        noise.Gaussian(GAMMA),
    ),
    "bernoulli": (
        *(stats.bernoulli(GAMMA), GAMMA, GAMMA * (1 - GAMMA), lambda eta: eta / GAMMA, 1),
        noise.Bernoulli(GAMMA),
    ),
    "gamma": (
        *(stats.gamma(ALPHA, scale=GAMMA), ALPHA * GAMMA, ALPHA * GAMMA**2),
        *(lambda eta: (eta - ALPHA * GAMMA) / math.sqrt(ALPHA), 0),
        noise.Gamma(GAMMA, alpha=ALPHA),
    ),
    "gumbel": (
        *(stats.gumbel_r(0, GAMMA), DELTA * GAMMA, math.pi**2 * GAMMA**2 / 6),
        *(lambda eta: math.sqrt(6) * (eta - DELTA * GAMMA) / math.pi, 0),
        noise.Gumbel(GAMMA),
    ),
    "laplace": (
        *(stats.laplace(0, GAMMA), 0, 2 * GAMMA**2, lambda eta: eta / math.sqrt(2), 0),
        noise.Laplace(GAMMA),
    ),
    "logistic": (
        *(stats.logistic(0, GAMMA), 0, math.pi**2 * GAMMA**2 / 3),
        *(lambda eta: math.sqrt(3) * eta / math.pi, 0),
        noise.Logistic(GAMMA),
    ),
    "beta": (
        *(stats.beta(ALPHA, GAMMA), ALPHA / (ALPHA + GAMMA)),
        ALPHA * GAMMA / ((ALPHA + GAMMA) ** 2 * (ALPHA + GAMMA + 1)),
        lambda eta: (
            (ALPHA + GAMMA)
            * math.sqrt((ALPHA + GAMMA + 1) / ALPHA)
            * (eta - ALPHA / (ALPHA + GAMMA))
        ),
        *(0, noise.Beta(GAMMA, alpha=ALPHA)),
    ),
    "chi-square": (
        *(stats.chi2(GAMMA), GAMMA, 2 * GAMMA, lambda eta: (eta - GAMMA) / math.sqrt(2), 0),
        noise.ChiSquare(GAMMA),
    ),
}


def test_all_rows() -> None:
    assert set(ROWS) == set(noise.FAMILIES)


@pytest.mark.parametrize("row", ROWS)
def test_row(row: str) -> None:
    law, mean, variance, scaled, scaled_mean, ours = ROWS[row]
    assert law.mean() == pytest.approx(mean)
    assert law.var() == pytest.approx(variance)
    # Every scaling is affine, so its two ends give its slope.
    slope = scaled(1.0) - scaled(0.0)
    assert scaled(mean) == pytest.approx(scaled_mean)
    assert slope**2 * variance == pytest.approx(ours.variance)
    assert type(ours) is noise.FAMILIES[row]


def stds(corpus: results.CorpusName, size: results.SizeName) -> dict[str, float]:
    """Of the noises in one column of the results, without dropout, as the noises have it."""
    column = [c for c in results.CELLS if (c.corpus, c.size, c.dropout) == (corpus, size, False)]
    return {c.family: round(noise.FAMILIES[c.family](c.gamma).std, 2) for c in column if c.family}


def test_the_papers_gammas_agree_on_the_large_model() -> None:
    """Read so, the tuned gammas of one column have like deviations; the pages name an exception."""
    large = stds("ptb", "large")
    assert (len(large), min(large.values()), max(large.values())) == (8, 1.10, 1.42)
    assert (large["chi-square"], large["bernoulli"]) == (1.10, 1.42)
    medium = stds("wikitext-2", "medium")
    assert medium.pop("chi-square") == 0.45
    assert (min(medium.values()), max(medium.values())) == (0.72, 1.0)
