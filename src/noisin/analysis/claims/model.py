"""The model: its likelihoods, Algorithm 1, and the RNN that remains without noise."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from noisin import likelihoods, noise
from noisin.analysis import rows
from noisin.analysis.rows import ClaimRow, Pair
from noisin.analysis.toys import (
    LIKELIHOODS,
    MODES,
    H,
    Model,
    N,
    O,
    T,
    X,
    draws,
    fixed,
    generator,
    inputs,
)
from noisin.recurrent.modules import LSTM

# As their variance falls, draws of the size of one become rare, not small.
RARE = ("bernoulli", "beta", "chi-square")


def likelihood_table() -> Iterator[ClaimRow]:
    """The table of likelihoods: A, its Hessian, and the moments they give."""
    s = torch.randn(O, dtype=torch.float64, generator=generator(5))
    p, one = s.softmax(-1), torch.eye(O, dtype=torch.float64)
    printed = {
        "Bernoulli": torch.diag(s.sigmoid() * (1 - s.sigmoid())),
        "Gaussian": one / 0.5,
        "Poisson": torch.diag(s.exp()),
        "Categorical": torch.diag(p) - torch.outer(p, p),
    }
    errors: list[Tensor] = []
    means: list[Pair] = []
    for lik in LIKELIHOODS:
        table = printed[type(lik).__name__]
        second = torch.func.jacrev(torch.func.jacrev(lambda s, lik=lik: lik.A(s).sum()))(s)
        operator = torch.stack([lik.hessian(s)(v) for v in one])
        errors += [(second - table).abs().max(), (operator - table).abs().max()]
        many = s.expand(draws(100_000), O)
        statistic = lik.T(lik.sample(many), like=many)
        slope = torch.func.jacrev(lambda s, lik=lik: lik.A(s).sum())(s)
        means += [rows.mean(off) for off in (statistic - slope).unbind(1)]
    place = "Table of A and its Hessian, Sec. 2"
    yield rows.exact("likelihood-hessian", "the Hessian of A is the table's", place, max(errors))
    claim = f"grad A - E[T(x)] (worst of {len(means)})"
    yield rows.equal("likelihood-mean", claim, place, means)


def algorithm_1() -> Iterator[ClaimRow]:
    """Algorithm 1 against the loop that the paper prints: two layers of LSTM, and the loss."""
    x, target = inputs(), torch.randint(O, (T, N), generator=generator(8))
    eps = 0.5 * torch.randn(2, T, N, H, dtype=torch.float64)
    errors = []
    for mode in MODES:
        rnn = LSTM(X, H, 2, bias=False, noise=noise.Gaussian(0.5), mode=mode)
        model = Model(likelihoods.Categorical(), rnn)
        loss, z, c = torch.zeros((), dtype=torch.float64), *torch.zeros(2, 2, N, H).double()
        z, c = list(z), list(c)
        for t in range(T):
            below = x[t]
            for k in range(2):
                i, f, g, o = torch.cat([*rnn.all_weights[k]], dim=1).chunk(4)
                both = torch.cat([below, z[k]], -1)
                c[k] = (both @ f.t()).sigmoid() * c[k] + (both @ i.t()).sigmoid() * (
                    both @ g.t()
                ).tanh()
                h = (both @ o.t()).sigmoid() * c[k].tanh()
                z[k] = below = h + eps[k, t] if mode == "additive" else h * (1 + eps[k, t])
            s = below @ model.V
            loss = loss - (s.gather(1, target[t, :, None]).squeeze(1) - s.logsumexp(-1)).sum()
        ours = model.likelihood.nll(s=rnn(x, eps=eps)[0] @ model.V, x=target).sum()
        slopes = [torch.autograd.grad(value, rnn.all_weights[0][1])[0] for value in (ours, loss)]
        errors += [(ours - loss).abs(), (slopes[0] - slopes[1]).abs().max()]
    claim = "loss and gradient of Algorithm 1 minus those of a plain loop"
    yield rows.exact("algorithm-1", claim, "Algorithm 1", max(errors))


def zero_noise() -> Iterator[ClaimRow]:
    """Driving the noise to zero leads to the RNN: ``E|z - h|`` falls as fast as the spread.

    The spread is gamma, and 1 - gamma for Bernoulli noise, whose gamma is the probability to keep.
    Noise of rare events needs a spread at which some occur.
    """
    x = inputs(1).expand(-1, draws(2000), X)
    found = []
    for name, family in noise.FAMILIES.items():
        spread = 1e-4 if name in RARE else 1e-8
        law = family(1 - spread if name == "bernoulli" else spread)
        for mode in MODES:
            for feedback in (True, False):
                lstm = fixed(LSTM(X, H, 2, noise=law, mode=mode, feedback=feedback), 2)
                with torch.no_grad():
                    z, h = lstm(x)[0], lstm.eval()(x[:, :1])[0]
                found.append(((z - h).abs().mean() / spread, 0.0))
    claim = f"E|z - h| over the spread of the noise, near zero (largest of {len(found)})"
    yield rows.at_most("zero-noise", claim, "Weak unbiasedness, Sec. 3", found, 20)
