"""In strong mode the geometric ensemble over noise is the clean RNN."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from noisin import likelihoods, noise, objective
from noisin.analysis import regularizer, rows
from noisin.analysis.rows import ClaimRow, Pair
from noisin.analysis.toys import STRONG, H, Model, O, T, X, draws, inputs
from noisin.recurrent.modules import RNN


def geometric_ensemble() -> Iterator[ClaimRow]:
    """Its natural parameter is that of the RNN, and its normaliser gives the regularizer."""
    lik, law, place = likelihoods.Categorical(), noise.Gumbel(0.8), "Ensembles, Sec. 4.2"
    model, x = Model(lik, RNN(X, H, noise=law, **STRONG)), inputs(1)
    with torch.no_grad():
        s = objective.predict(model, x, K=draws(20_000)).s
        off = (s - model.clean(x) @ model.V).flatten(1)
    found = [rows.mean(samples) for samples in off.unbind(1)]
    claim = f"mean over noise of s, minus the clean RNN's (worst of {len(found)})"
    yield rows.equal("geometric", claim, place, found)
    reg = regularizer.explicit_regularizer(lik, model.V, model.clean(x), law, K=draws(4000))
    claim = "minus the log of its normaliser, minus the regularizer"
    gap = rows.difference(minus_log_normaliser(lik, s), (reg.monte_carlo, reg.stderr))
    yield rows.equal("normaliser", claim, place, [gap])


def minus_log_normaliser(lik: likelihoods.Categorical, s: Tensor) -> Pair:
    """``-Σ_t log Σ_x Π_k p_k(x)^(1/K)`` of s, ``(K, T, 1, O)``, summed over all O outcomes.

    With the geometric ensemble q, sample k adds ``-Σ_x q(x) log p_k(x)`` to it, to first order.
    """
    outcomes = torch.arange(O).expand(len(s), T, O)
    log_p = -lik.nll(s=s.expand(len(s), T, O, O), x=outcomes)
    mixed = log_p.mean(0)
    q = mixed.softmax(-1)
    _, stderr = rows.mean(-(q * log_p).sum((1, 2)))
    return -mixed.logsumexp(-1).sum(), stderr
