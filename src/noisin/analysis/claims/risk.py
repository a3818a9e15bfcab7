"""The risk with noise against the risk without, in strong and in weak mode."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from noisin import likelihoods, noise, objective
from noisin.analysis import regularizer, risk, rows
from noisin.analysis.rows import ClaimRow, Pair
from noisin.analysis.toys import (
    LIKELIHOODS,
    STRONG,
    H,
    Model,
    N,
    O,
    T,
    X,
    draws,
    generator,
    inputs,
)
from noisin.objective import Window
from noisin.recurrent.modules import LSTM, RNN


def strong_mode_regularizes() -> Iterator[ClaimRow]:
    """In strong mode the risk gains the regularizer, on any targets, and that is not negative."""
    law, place = noise.Gaussian(0.7), "Theorem, Sec. 4.1 and Appendix"
    gains: list[Pair] = []
    gaps: list[Pair] = []
    for lik in LIKELIHOODS:
        model = Model(lik, LSTM(X, H, noise=law, **STRONG), scale=1.0)
        s = torch.randn(T, N, O, dtype=torch.float64, generator=generator(6))
        x, target = inputs(), lik.sample(s, generator=generator(7))
        found = risk.risk_decomposition(model, Window(x, target), K=draws(4000))
        reg = regularizer.explicit_regularizer(lik, model.V, model.clean(x), law, K=draws(1000))
        gains.append((found.difference, found.stderr))
        gaps.append(rows.difference(gains[-1], (reg.monte_carlo, reg.stderr)))
    claim = "R - R(det) > 0 in strong mode (least of 4)"
    yield rows.positive("strong-positive", claim, place, gains)
    claim = "R - R(det) - E[A(Vz) - A(Vh)] on arbitrary targets (worst of 4)"
    yield rows.equal("strong-regularizer", claim, place, gaps)


def weak_mode_regularizes_its_own_data() -> Iterator[ClaimRow]:
    """Fed back: on targets drawn from the model the gain is a KL; on others it may be negative."""
    law, place = noise.Gaussian(1.0), "Weak unbiasedness, Appendix"
    lik = likelihoods.Gaussian(1.0)
    model, x = Model(lik, RNN(X, H, noise=law), scale=1.0), inputs(1)
    gain = own_data_gain(model, x)
    claim = "fed back: R - R(det) > 0 on the model's own data"
    yield rows.positive("weak-own-data", claim, place, [gain])
    claim = "the same minus E KL(p_h || p_z)"
    yield rows.equal("weak-kl", claim, place, [rows.difference(gain, _kl(model, x))])
    dropped = Model(lik, nn.LSTM(X, H, 2, dropout=0.5), scale=1.0)
    claim = "the same for dropout between layers, biased as it is"
    gap = rows.difference(own_data_gain(dropped, x), _kl(dropped, x))
    yield rows.equal("weak-dropout", claim, place, [gap])
    s = model.clean(x) @ model.V.detach()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(1111)  # targets are the same for every seed of the table
        shift = model(x.expand(T, draws(20_000), X))[0].mean(1, keepdim=True) - s
    found = risk.risk_decomposition(model, Window(x, s + 300 * shift), K=draws(20_000))
    claim = "R(det) - R > 0 on targets chosen for it: no regularizer there"
    yield rows.positive("weak-other-data", claim, place, [(-found.difference, found.stderr)])


def own_data_gain(model: Model, x: Tensor, count: int = 4000, K: int = 20) -> Pair:
    """R - R(det) of one row, over ``count`` rows of targets that the clean model draws."""
    count = draws(count)
    many = x.expand(len(x), count, X)
    s = model.clean(many) @ model.V.detach()
    target = model.likelihood.sample(s)
    with torch.no_grad():
        noisy = -objective.estimate(model, Window(many, target), K=K).log_p.mean(0)
    clean = model.likelihood.nll(s=s, x=target)
    return rows.mean(noisy - clean.reshape(len(x), count, -1).sum((0, 2)))


def _kl(model: Model, x: Tensor) -> Pair:
    kl = risk.expected_kl(model, x, K=draws(4000))
    return kl.value, kl.stderr
