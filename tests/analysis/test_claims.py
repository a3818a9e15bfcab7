"""The table of claims: it passes on three seeds, and every row can fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from noisin import functional, kernels, likelihoods, noise, objective
from noisin.analysis import claims, regularizer, risk
from noisin.analysis import rows as rows_module
from noisin.analysis.rows import Row
from noisin.regularizers import DropoutLSTMCell
from noisin.rnn import RNN

Patch = pytest.MonkeyPatch


def standard_errors_to_spare(row: Row) -> float:
    """How far a row that must exceed something is beyond it: none may hang on the seed."""
    if row.expected == "> 0":
        return row.measured / row.stderr - rows_module.Z
    if row.expected.startswith("|t| >"):
        return row.measured - float(row.expected.split()[-1])
    if row.expected.startswith("off by"):
        off = abs(row.measured - 1) - float(row.expected.split()[-1])
        return off / row.stderr - rows_module.Z
    return float("inf")


@pytest.mark.parametrize("seed", [1111, 1112, 1113])
def test_every_claim_holds_at_the_rate_of_false_alarms_declared(
    seed: int, monkeypatch: Patch
) -> None:
    assert rows_module.FALSE_ALARM_RATE < 1e-4
    compared: list[int] = []
    rates: list[float] = []
    worst, check = claims.worst, claims.unbiasedness.check_unbiased

    def counted_worst(found: Any, to: float) -> Any:
        compared.append(len(found))
        return worst(found, to)

    def counted_check(*args: Any, false_alarm: float, **kwargs: Any) -> Any:
        rates.append(false_alarm)
        return check(*args, false_alarm=false_alarm, **kwargs)

    monkeypatch.setattr(claims, "worst", counted_worst)
    monkeypatch.setattr(claims.unbiasedness, "check_unbiased", counted_check)
    before = torch.get_rng_state()
    rows = claims.verify(seed)
    assert [row for row in rows if not row.passed] == []
    assert len(rows) == len({row.id for row in rows})
    assert {row.id for row in rows} == {row for row, _, _ in BREAKS}, "every row has a break"
    assert torch.equal(torch.get_rng_state(), before)
    assert min(map(standard_errors_to_spare, rows)) > 8
    assert sum(compared) + len(rows) < rows_module.COMPARISONS
    assert sum(rates) <= rows_module.FALSE_ALARM_RATE / 2


def draws(family: type[noise.Family], change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A break: the draws of a family, changed."""

    def apply(patch: Patch) -> None:
        draw = family._draw
        patch.setattr(family, "_draw", lambda self, source: change(draw(self, source)))

    return apply


def scaled(owner: Any, name: str, factor: float) -> Callable[[Patch], None]:
    """A break: what a function returns, off by a factor."""

    def change(value: Any) -> Any:
        if isinstance(value, risk.Measured):
            return risk.Measured(value.value * factor, value.stderr)
        return value * factor

    def apply(patch: Patch) -> None:
        function = getattr(owner, name)
        patch.setattr(owner, name, lambda *args, **kwargs: change(function(*args, **kwargs)))

    return apply


def replaced(owner: Any, name: str, value: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(owner, name, value)


def closed_form_copies_monte_carlo(patch: Patch) -> None:
    explicit = regularizer.explicit_regularizer

    def copying(*args: Any, **kwargs: Any) -> Any:
        reg = explicit(*args, **kwargs)
        return regularizer.Regularizer(reg.monte_carlo, reg.monte_carlo, reg.stderr)

    patch.setattr(regularizer, "explicit_regularizer", copying)


def skewed_poisson(patch: Patch) -> None:
    sample = likelihoods.Poisson.sample
    patch.setattr(likelihoods.Poisson, "sample", lambda self, s, *a: sample(self, s + 0.1, *a))


def wrong_hessian(patch: Patch) -> None:
    patch.setattr(likelihoods.Categorical, "hessian", lambda self, s: lambda v: s.softmax(-1) * v)


biased = draws(noise.Gaussian, lambda eps: eps + 0.1)
wider = draws(noise.Gaussian, lambda eps: eps * 1.1)
silent = draws(noise.Gaussian, torch.zeros_like)
off_inject = replaced(functional, "inject", lambda h, eps, mode: h * (1 + 1.01 * eps))
fed_back_strong = replaced(claims, "STRONG", {"feedback": True, "noisy_layers": "last"})
never_fed_back = replaced(claims, "RNN", partial(RNN, feedback=False))
flat_marginal = replaced(objective.Estimate, "marginal", objective.Estimate.bound)

BREAKS: list[tuple[str, Callable[[], Any], Callable[[Patch], None]]] = [
    ("noise-mean", claims.noise_table, biased),
    ("noise-variance", claims.noise_table, wider),
    ("likelihood-hessian", claims.likelihood_table, wrong_hessian),
    ("likelihood-mean", claims.likelihood_table, skewed_poisson),
    ("algorithm-1", claims.algorithm_1, off_inject),
    ("strong", claims.unbiased_noise, fed_back_strong),
    ("strong", claims.unbiased_noise, biased),
    ("weak", claims.unbiased_noise, biased),
    ("fed-back-not-strong", claims.unbiased_noise, never_fed_back),
    (
        "shared-not-weak",
        claims.unbiased_noise,
        replaced(claims, "RNN", lambda *a, share="step", **k: RNN(*a, **k)),
    ),
    (
        "affine",
        claims.unbiased_noise,
        replaced(claims, "Affine", lambda: nn.RNNCell(claims.X, claims.H)),
    ),
    (
        "dropout-biased",
        claims.unbiased_noise,
        replaced(DropoutLSTMCell, "forward", nn.LSTMCell.forward),
    ),
    ("bernoulli-output", claims.bernoulli_is_dropout, off_inject),
    ("bernoulli-fed-back", claims.bernoulli_is_dropout, off_inject),
    ("strong-positive", claims.strong_mode_regularizes, silent),
    (
        "strong-regularizer",
        claims.strong_mode_regularizes,
        scaled(regularizer, "_bregman_samples", 1.5),
    ),
    ("weak-own-data", claims.weak_mode_regularizes_its_own_data, silent),
    ("weak-kl", claims.weak_mode_regularizes_its_own_data, scaled(risk, "expected_kl", 1.2)),
    ("weak-dropout", claims.weak_mode_regularizes_its_own_data, scaled(risk, "expected_kl", 1.2)),
    ("weak-other-data", claims.weak_mode_regularizes_its_own_data, never_fed_back),
    ("closed-small", claims.closed_form, scaled(regularizer.Penalty, "__call__", 1.1)),
    ("closed-large", claims.closed_form, closed_form_copies_monte_carlo),
    ("closed-rare", claims.closed_form, closed_form_copies_monte_carlo),
    ("closed-gaussian", claims.closed_form, wider),
    ("fisher", claims.fed_back_noise_by_fisher_score, scaled(risk, "fisher_penalty", 1.2)),
    ("geometric", claims.ensembles, draws(noise.Gumbel, lambda eps: eps + 0.1)),
    ("geometric", claims.ensembles, fed_back_strong),
    ("normaliser", claims.ensembles, scaled(objective.Ensemble, "log_normaliser", 1.3)),
    ("jensen", claims.jensen_bound, flat_marginal),
    ("bound", claims.jensen_bound, flat_marginal),
    ("prior", claims.empirical_bayes, scaled(objective, "transition_log_density", 1.01)),
    ("marginal", claims.empirical_bayes, flat_marginal),
]


@pytest.mark.parametrize(("id", "claim", "broken"), BREAKS, ids=[row for row, _, _ in BREAKS])
def test_a_broken_thing_is_caught(
    id: str, claim: Callable[[], Any], broken: Any, monkeypatch: Patch
) -> None:
    broken(monkeypatch)
    with kernels.using("reference"):  # what the breaks are made in
        rows: dict[str, Row] = {row.id: row for row in claim()}
    assert not rows[id].passed, rows[id]
