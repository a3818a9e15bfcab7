"""Bounds of the marginal likelihood with K particles: importance weights, resampled or not.

The weight of a particle after t steps is ``w_t = Π_s p(x_s | z_s) p(z_s) / q(z_s)``. Importance
weighting (IWAE, Burda, Grosse and Salakhutdinov, 2016) averages the weights of the whole sequence,
``log (1/K) Σ_k w_T^k``. A filter (FIVO, Maddison et al., 2017) does so whenever few particles have
most of the weight: it adds the logarithm of the mean weight to the bound, draws K particles in
proportion to the weights, and starts again with weights of one. The mean of ``exp(bound)`` is the
likelihood in both cases, so the mean of the bound is below its logarithm.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from noisin._util import arguments
from noisin.data.batch import Batch
from noisin.models.base import State
from noisin.models.latent.base import LatentModel
from noisin.models.latent.walk import Walk


class Particles(NamedTuple):
    """The state between two batches of one sequence.

    Attributes:
        state: of the model, for K·N rows.
        log_w: the logarithms of the weights since the last resampling, ``(K, N)``.
    """

    state: State
    log_w: Tensor


def particle_bound(
    model: LatentModel,
    batch: Batch,
    particles: Particles | None = None,
    *,
    K: int,
    threshold: float | None = None,
    eta: Tensor | None = None,
) -> tuple[Tensor, Particles]:
    """The part of each step in the bound, ``(T, N)``; their sum is the bound of the sequence.

    Args:
        model: the model.
        batch: whole sequences, or their next steps. Targets that are not scored have weight one.
        particles: those of the steps before, or None at the beginning.
        K: the number of particles.
        threshold: resample where the effective number of particles, ``1/Σ_k w_k²`` of normalised
            weights, is at most ``threshold · K``; None never does.
        eta: standard normal noise, ``(T, K·N, Z)``; drawn if it is not given.
    """
    arguments.instance("particle_bound: model", model, LatentModel, "Pass, for example, a VRNN.")
    if threshold is not None:
        arguments.finite("particle_bound: threshold", threshold, least=0)
    walk = Walk(model, batch, None if particles is None else particles.state, K=K, eta=eta)
    T, N = batch.target.shape[:2]
    log_w = walk.eta.new_zeros(K, N, dtype=torch.float64)
    if particles is not None:
        log_w = particles.log_w
    before, parts = log_mean(log_w), []
    for t in range(T):
        scored = None if batch.scored is None else batch.scored[t]
        log_w = log_w + _log_weight(model, walk, batch, t, scored).view(K, N)
        after = log_mean(log_w)
        parts.append(after - before)
        before = after
        if threshold is None:
            continue
        few = effective(log_w) <= threshold * K
        few = few if scored is None else few & scored
        if few.any():
            _resample(walk, model, log_w, few)
            log_w, before = log_w.masked_fill(few, 0.0), before.masked_fill(few, 0.0)
    return torch.stack(parts), Particles(walk.carried, log_w)


def _log_weight(
    model: LatentModel, walk: Walk, batch: Batch, t: int, scored: Tensor | None
) -> Tensor:
    """``log p(x_t | z_t) + log p(z_t) - log q(z_t)`` of the next step; zero if it is not scored."""
    step, K = walk.step(t), walk.K
    log_p = model.log_emission(step.read.unsqueeze(0), batch.rows(slice(t, t + 1)).repeat(K))[0]
    log_w = (log_p + step.p.log_prob(step.z) - step.q.log_prob(step.z)).double()
    return log_w if scored is None else log_w.where(scored.repeat(K), 0.0)


def _resample(walk: Walk, model: LatentModel, log_w: Tensor, rows: Tensor) -> None:
    """Draw particles in proportion to their weights, in the rows given; the others keep theirs."""
    K = len(log_w)
    weights = log_w.softmax(0).t()
    drawn = torch.multinomial(weights, K, replacement=True, generator=model.generator).t()
    same = torch.arange(K, device=drawn.device).unsqueeze(1)
    walk.select(torch.where(rows, drawn, same))


def effective(log_w: Tensor) -> Tensor:
    """The effective number of K particles of each row.

    >>> effective(torch.tensor([[0.0, 0.0], [0.0, -99.0]]))
    tensor([2., 1.])
    """
    return 1 / log_w.softmax(0).square().sum(0)


def log_mean(log_w: Tensor) -> Tensor:
    """The logarithm of the mean weight of K particles."""
    return log_w.logsumexp(0) - math.log(len(log_w))
