"""The closed form, the Fisher score and the printed regularizer, against exact values."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from noisin import likelihoods, noise
from noisin.analysis import curves, printed, regularizer, risk, rows
from noisin.analysis.rows import ClaimRow, Pair
from noisin.analysis.toys import LIKELIHOODS, MODES, STRONG, H, Model, X, draws, inputs
from noisin.recurrent.functional import Mode
from noisin.recurrent.modules import GRU, RNN

PLACE = "Regularizer, Sec. 4.1"
CORRECTED_PLACE = f"{PLACE} {rows.CORRECTED}"


def closed_form() -> Iterator[ClaimRow]:
    """The second-order closed form against Monte Carlo: where it holds, and where it does not."""
    W, h = curves.problem()

    def ratio(lik: likelihoods.Likelihood, V: Tensor, law: noise.Noise, mode: Mode, K: int) -> Pair:
        reg = regularizer.explicit_regularizer(lik, V, h, law, mode, draws(K))
        return rows.ratio((reg.closed_form, 0.0), (reg.monte_carlo, reg.stderr))

    small = noise.Gaussian(0.05)
    found = [ratio(lik, W / 2, small, mode, 600) for lik in LIKELIHOODS for mode in MODES]
    claim = "closed form over Monte Carlo, gamma 0.05 (worst of 8)"
    yield rows.near("closed-small", claim, PLACE, found, 0.01)
    categorical = likelihoods.Categorical()
    pair = ratio(categorical, W, noise.Gaussian(1.39), "multiplicative", 500)
    claim = "... at gamma 1.39, as in the paper's tables: no longer"
    yield rows.off("closed-large", claim, CORRECTED_PLACE, pair, 0.1)
    pair = ratio(categorical, 2 * W, noise.ChiSquare(0.04), "multiplicative", 6000)
    claim = "... for Chi-square at std 0.2: rare draws are not small"
    yield rows.off("closed-rare", claim, CORRECTED_PLACE, pair, 0.05)
    gaussian = likelihoods.Gaussian(0.5)
    laws = [family.from_variance(1.44) for family in noise.FAMILIES.values()]
    found = [ratio(gaussian, W, law, "multiplicative", 500) for law in laws]
    claim = "Gaussian likelihood: the same at std 1.2, exact for all (worst of 8)"
    yield rows.equal("closed-gaussian", claim, PLACE, found, 1)


def fed_back_noise() -> Iterator[ClaimRow]:
    """What small fed-back noise adds, by scores and as the paper prints it, against the KL."""
    law, x = noise.Gaussian(0.05), inputs()
    model = Model(likelihoods.Categorical(), GRU(X, H, 2, noise=law))
    kl = risk.expected_kl(model, x, K=draws(2000))
    fisher = risk.fisher_penalty(model, x, draws=draws(1000))
    claim = "½ v E|score|² over E KL for fed-back noise at gamma 0.05"
    found = rows.ratio((fisher.value, fisher.stderr), (kl.value, kl.stderr))
    yield rows.near("fisher", claim, "Fisher information, Sec. 4.1", [found], 0.02)

    strong = Model(model.likelihood, GRU(X, H, 2, noise=law, **STRONG))
    reg = printed.printed_regularizer(strong, x, K=draws(2000))
    closed = regularizer.Penalty(model.likelihood, law)(strong.clean(x), strong.V).sum()
    claim = "½ tr Cov(Bᵀz | z_prev), as printed, over the closed form: not fed back"
    found = rows.ratio((reg.value, reg.stderr), (closed, 0.0))
    yield rows.equal("printed-strong", claim, PLACE, [found], 1)
    elman = Model(model.likelihood, RNN(X, H, noise=law))
    reg = printed.printed_regularizer(elman, x, K=draws(2000))
    kl = risk.expected_kl(elman, x, K=draws(2000))
    claim = "... over E KL, fed back: it leaves out the noise of earlier steps"
    found = rows.ratio((reg.value, reg.stderr), (kl.value, kl.stderr))
    yield rows.off("printed-fed-back", claim, CORRECTED_PLACE, found, 0.1)
