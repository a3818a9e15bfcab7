"""The mathematical claims of the paper, checked: one row per claim, with its figure and error.

``verify`` computes the table that ``noisin verify`` prints. Each row compares what the library does
with something that shares no code with it: the paper's formula, torch's own layers, an exact
enumeration or a quadrature. Rows that correct the paper say so in their place.

Models, inputs and targets are the same every time, and the seed is that of the noise alone. A
comparison of random figures allows for so many standard errors that the whole table raises a false
alarm with probability below ``rows.FALSE_ALARM_RATE``. Rows about what does *not* hold, or is above
zero, pass where that shows beyond doubt; their effects lie ten standard errors and more beyond what
they must exceed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from noisin.analysis.claims import bayes, dropout, ensembles, noises, regularizer, risk
from noisin.analysis.claims import model as model_claims
from noisin.analysis.claims import unbiased as unbiased_claims
from noisin.analysis.rows import ClaimRow

CLAIMS: tuple[Callable[[], Iterator[ClaimRow]], ...] = (
    noises.noise_table,
    noises.unbounded_variance,
    model_claims.likelihood_table,
    model_claims.algorithm_1,
    model_claims.zero_noise,
    unbiased_claims.unbiased_noise,
    dropout.bernoulli_is_dropout,
    dropout.zaremba_is_no_special_case,
    risk.strong_mode_regularizes,
    risk.weak_mode_regularizes_its_own_data,
    regularizer.closed_form,
    regularizer.fed_back_noise,
    ensembles.geometric_ensemble,
    bayes.jensen_bound,
    bayes.prior,
    bayes.joint,
)


def verify(seed: int = 1111, progress: Callable[[str], None] | None = None) -> list[ClaimRow]:
    """Check all claims; the global random stream is left as it was."""
    rows: list[ClaimRow] = []
    with torch.random.fork_rng(devices=[]):
        for number, claim in enumerate(CLAIMS):
            if progress is not None:
                progress(claim.__name__.replace("_", " "))
            torch.manual_seed(seed * 1000 + number)
            rows.extend(claim())
    return rows
