"""The Jensen bound and empirical Bayes: bound, marginal, prior and joint density.

Bernoulli noise takes finitely many values, so that a small model can be summed over all of them:
the exact objective and marginal, which the estimates are held against.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from noisin import likelihoods, noise, objective
from noisin.analysis import rows
from noisin.analysis.rows import LEVEL, ClaimRow, Pair
from noisin.analysis.toys import MODES, Model, X, draws, inputs
from noisin.objective import Window
from noisin.recurrent import cells
from noisin.recurrent.modules import RNN

KEEP, STEPS, UNITS = 0.6, 3, 2
PLACE = "Empirical Bayes, Sec. 4.2"


def jensen_bound() -> Iterator[ClaimRow]:
    """The objective bounds the marginal likelihood, whose estimate rises with K towards it."""
    place = "Jensen bound, Sec. 3"
    rnn = RNN(X, UNITS, noise=noise.Bernoulli(KEEP))
    model = Model(likelihoods.Categorical(), rnn, scale=4.0)
    x = inputs(1)[:STEPS]
    target = (model.clean(x) @ model.V).argmax(-1)  # where the clean RNN does best
    log_weight, log_p = enumerated(model, x, target)
    exact_bound = (log_weight.exp() * log_p).sum()
    exact_marginal = (log_weight + log_p).logsumexp(0)
    with torch.no_grad():
        found = objective.estimate(model, Window(x, target), K=draws(20_000))
        estimates = [_marginal_of(model, x, target, K) for K in (1, 3, 9)]
    steps = [*estimates, (exact_marginal, 0.0)]
    rises = [rows.difference(b, a) for a, b in pairwise(steps)]
    claim = "rise of the K-sample marginal, K = 1 → 3 → 9 → exact (least)"
    yield rows.positive("jensen", claim, place, rises)
    bound, marginal = (found.bound, found.bound_stderr), (found.marginal, found.marginal_stderr)
    claim = "exact marginal, over all masks, minus the bound that training maximises"
    gap = rows.difference((exact_marginal, 0.0), bound)
    yield rows.positive("bound", claim, place, [gap])
    claim = "that bound minus the exact mean over all masks"
    gap = rows.difference(bound, (exact_bound, 0.0))
    yield rows.equal("objective", claim, place, [gap])
    claim = "marginal by sampling minus the exact one, over all masks"
    gap = rows.difference(marginal, (exact_marginal, 0.0))
    yield rows.equal("marginal", claim, PLACE, [gap])


def enumerated(model: Model, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The log probability of every mask of a sequence, and that of the targets given it.

    By torch's own cell, whose h is multiplied by the masks of dropout, step by step.
    """
    cell = nn.RNNCell(X, UNITS).double()
    cell.load_state_dict({name[:-3]: w for name, w in model.rnn.state_dict().items()})
    bits = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * (STEPS * UNITS)).double()
    masks = bits.view(-1, STEPS, UNITS) / KEEP
    log_weight = (bits * math.log(KEEP) + (1 - bits) * math.log(1 - KEEP)).sum(1)
    log_p, z = torch.zeros(len(bits), dtype=torch.float64), None
    with torch.no_grad():
        for t in range(STEPS):
            z = cell(x[t].expand(len(bits), X), z) * masks[:, t]
            log_p += (z @ model.V).log_softmax(-1)[:, int(target[t])]
    return log_weight, log_p


def _marginal_of(model: Model, x: Tensor, target: Tensor, K: int) -> Pair:
    """The mean of many independent K-sample estimates of the marginal."""
    repeats = draws(8000)
    many = Window(x.expand(STEPS, repeats, X), target.expand(STEPS, repeats))
    log_p = objective.estimate(model, many, K=K).log_p
    each = [objective.Estimate(part, None).marginal for part in torch.split(log_p, 1, dim=1)]
    return rows.mean(torch.stack(each))


# Smooth members of the families that have a density.
SMOOTH: dict[str, float] = {
    **dict.fromkeys(("gaussian", "gamma", "gumbel", "laplace", "logistic"), 0.5),
    "beta": 2.0,
    "chi-square": 3.0,
}


# Those of an RNN of two units, such that one f is above zero and the other below.
WEIGHTS = ([[0.8], [-1.2]], [[0.5, -0.2], [0.4, 0.3]])


def prior() -> Iterator[ClaimRow]:
    """The prior of the noisy state has the law of the transitions that an RNN makes."""
    n = draws(100_000)
    grid = torch.linspace(-15, 30, 90_001, dtype=torch.float64)
    x, z_before = torch.ones(1, n, 1).double(), torch.full((1, n, 2), 0.3).double()
    found = []
    for name, gamma in SMOOTH.items():
        law = noise.FAMILIES[name](gamma)
        for mode in MODES:
            rnn = RNN(1, 2, bias=False, noise=law, mode=mode).double()
            with torch.no_grad():
                for weight, value in zip(rnn.parameters(), WEIGHTS, strict=True):
                    weight.copy_(torch.tensor(value))
                z = rnn(x, z_before)[0].squeeze(0)
                f = rnn.eval()(x[:, :1], z_before[:, :1])[0].flatten()
            for unit in range(2):
                density = objective.transition_log_density(
                    grid[:, None], f[unit].expand(len(grid), 1), law, mode
                ).exp()
                found.append((_distance(z[:, unit], grid, density), 0.0))
    # Dvoretzky-Kiefer-Wolfowitz: the distance exceeds d with probability 2 exp(-2 n d²) at most.
    bound = math.sqrt(math.log(2 / LEVEL) / (2 * n))
    claim = f"distance of p(z | z_prev, x) from the law of z (largest of {len(found)})"
    yield rows.at_most("prior", claim, PLACE, found, bound)


def _distance(z: Tensor, grid: Tensor, density: Tensor) -> Tensor:
    """The largest difference of the distribution of samples and the integral of a density."""
    step = grid[1] - grid[0]
    integral = torch.cat([grid.new_zeros(1), ((density[1:] + density[:-1]) * step / 2).cumsum(0)])
    z = z.sort().values
    place = ((z - grid[0]) / step).clamp(0, len(grid) - 1.001)
    left = place.long()
    cdf = integral[left].lerp(integral[left + 1], place - left)
    ranks = torch.arange(len(z) + 1, dtype=torch.float64) / len(z)
    return torch.maximum((ranks[1:] - cdf).max(), (cdf - ranks[:-1]).max())


def joint() -> Iterator[ClaimRow]:
    """The joint density, integrated over the noisy states, is the marginal likelihood."""
    law, lik = noise.Gumbel(0.4), likelihoods.Gaussian(1.0)
    settings: dict[str, Any] = {"noise": law, "mode": "additive", "bias": False}
    rnn, cell = RNN(1, 1, **settings).double(), cells.RNNCell(1, 1, **settings).double()
    with torch.no_grad():
        for module in (rnn, cell):
            for weight, value in zip(module.parameters(), (0.9, -1.3), strict=True):
                weight.fill_(value)
    x, target = (torch.tensor(v).double().view(2, 1, 1) for v in ((0.7, -0.4), (0.2, 0.9)))
    axis = torch.linspace(-3, 5, 401, dtype=torch.float64)
    z = torch.cartesian_prod(axis, axis).t().unsqueeze(-1)  # two steps, and all pairs of states
    pairs = z.shape[1]
    with torch.no_grad():
        log_joint = objective.log_joint(
            cell, lambda z: z, x.expand(2, pairs, 1), target.expand(2, pairs, 1), z, lik
        )
        found = objective.estimate(rnn, Window(x, target), K=draws(20_000), likelihood=lik)
    density = log_joint.exp().view(len(axis), len(axis))
    exact = torch.trapezoid(torch.trapezoid(density, axis), axis).log()
    claim = "log ∫ p(x, z) dz of two steps minus the marginal by sampling"
    gap = rows.difference((exact, 0.0), (found.marginal, found.marginal_stderr))
    yield rows.equal("joint", claim, PLACE, [gap])
