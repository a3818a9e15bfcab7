"""The bounds against an exact likelihood, and against each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from noisin.data import Batch
from noisin.models.latent import particle_bound
from noisin.models.latent.bounds import _resample, effective
from noisin.models.latent.walk import Walk
from tests import stats
from tests.models.latent.kalman import StateSpace, draw, joint_likelihood, likelihood

T, N = 7, 3


def batch(copies: int = 1, columns: int = N) -> Batch:
    x = draw(T, columns).repeat(1, copies, 1)
    return Batch(torch.zeros_like(x), x, carries=False)


def exact() -> torch.Tensor:
    found = [likelihood(x) for x in draw(T, N).transpose(0, 1).numpy()]
    return torch.tensor(found, dtype=torch.float64)


def test_two_ways_to_the_exact_likelihood() -> None:
    for x in draw(T, N).transpose(0, 1).numpy():
        assert likelihood(x) == pytest.approx(joint_likelihood(x), rel=1e-12)


@pytest.mark.parametrize("K", [1, 5])
def test_importance_weighting_is_exact_with_the_exact_posterior(K: int) -> None:
    """Whatever is drawn: all particles have the same weight, that of the whole sequence."""
    parts, _ = particle_bound(StateSpace("smoothing"), batch(), K=K)
    torch.testing.assert_close(parts.sum(0), exact())


def test_the_elbo_is_exact_with_the_exact_posterior() -> None:
    """On average over z: the KL divergence is in closed form, but the emission is not."""
    many = 4000
    bound = StateSpace("smoothing").bound(batch(many))
    found = (bound.log_p - bound.kl).sum(0).view(many, N).detach()
    for n, expected in enumerate(exact().tolist()):
        sample = found[:, n].numpy()
        stats.assert_mean(sample, expected, float(sample.std()))


@pytest.mark.parametrize(
    ("posterior", "threshold"),
    # With a look into the future the weights before the end are not those of the past alone, and
    # resampling by them makes an exact bound inexact, but still a bound.
    [("filtering", None), ("filtering", 0.5), ("prior", None), ("prior", 0.5), ("smoothing", 1.0)],
)
def test_the_mean_likelihood_is_exact_and_its_logarithm_below(
    posterior: str, threshold: float | None
) -> None:
    many, K = 4000, 4
    found, _ = particle_bound(StateSpace(posterior), batch(many), K=K, threshold=threshold)
    totals = found.sum(0).view(many, N)
    for n, expected in enumerate(exact().tolist()):
        ratio = (totals[:, n] - expected).exp().numpy()
        stats.assert_mean(ratio, 1.0, float(ratio.std()))
        sample = totals[:, n].numpy()
        assert sample.mean() + stats.Z * sample.std() / many**0.5 < expected


def test_more_particles_are_better_and_resampling_is_better_still() -> None:
    many = 1500
    means, errors = [], []
    for K, threshold in ((1, None), (2, None), (8, None), (8, 0.5)):
        found, _ = particle_bound(StateSpace("prior"), batch(many), K=K, threshold=threshold)
        sample = found.sum(0)
        means.append(float(sample.mean()))
        errors.append(float(sample.view(many, N).mean(1).std()) / many**0.5)
    for k in range(3):
        assert means[k + 1] - means[k] > stats.Z * np.hypot(errors[k], errors[k + 1])


def test_one_particle_is_the_bound_itself() -> None:
    model, b = StateSpace("filtering"), batch()
    eta = torch.randn(T, N, 1, dtype=torch.float64)
    bound = model.bound(b, eta=eta)
    q, p, z = bound.steps.q, bound.steps.p, bound.steps.z
    expected = bound.log_p + p.log_prob(z) - q.log_prob(z)
    for threshold in (None, 0.5):
        found, _ = particle_bound(model, b, K=1, threshold=threshold, eta=eta)
        torch.testing.assert_close(found, expected)


def test_a_filter_that_never_resamples_is_importance_weighting() -> None:
    model, b, K = StateSpace("filtering"), batch(), 6
    eta = torch.randn(T, K * N, 1, dtype=torch.float64)
    never, _ = particle_bound(model, b, K=K, eta=eta, threshold=0.0)
    bound = model.bound(b.repeat(K), eta=eta)
    log_w = bound.log_p + bound.steps.p.log_prob(bound.steps.z)
    log_w = (log_w - bound.steps.q.log_prob(bound.steps.z)).view(T, K, N).sum(0)
    expected = log_w.logsumexp(0) - np.log(K)
    torch.testing.assert_close(never.sum(0), expected)
    torch.testing.assert_close(particle_bound(model, b, K=K, eta=eta)[0], never)


def test_the_windows_of_a_sequence_have_the_bound_of_the_whole() -> None:
    """The weights are those of the whole sequence; averaged in each window, they are not."""
    model, b, K = StateSpace("filtering"), batch(), 5
    eta = torch.randn(T, K * N, 1, dtype=torch.float64)
    whole, _ = particle_bound(model, b, K=K, eta=eta)
    first, state = particle_bound(model, b.rows(slice(0, 3)), K=K, eta=eta[:3])
    rest, _ = particle_bound(model, b.rows(slice(3, T)), state, K=K, eta=eta[3:])
    torch.testing.assert_close(torch.cat([first, rest]), whole)


def test_particles_are_drawn_in_proportion_to_their_weights() -> None:
    """Each row for itself; their number in the next generation has a binomial law."""
    K, rows = 3, 4000
    model = StateSpace("prior")
    walk = Walk(model, batch(columns=rows), None, K=K, eta=None)
    walk.state = torch.arange(K * rows, dtype=torch.float64).unsqueeze(1)
    log_w = torch.tensor([[0.1], [0.6], [0.3]], dtype=torch.float64).log().expand(K, rows)
    chosen = torch.arange(rows) % 2 == 0
    _resample(walk, model, log_w, chosen)
    found = walk.state.view(K, rows).long()
    number, row = found // rows, found % rows
    assert (row == torch.arange(rows)).all(), "a particle stays in its row"
    assert (number[:, ~chosen] == torch.arange(K).unsqueeze(1)).all()
    for k, weight in enumerate((0.1, 0.6, 0.3)):
        share = (number[:, chosen] == k).double().numpy().ravel()
        stats.assert_mean(share, weight, (weight * (1 - weight)) ** 0.5)


def test_the_effective_number() -> None:
    log_w = torch.tensor([[0.0, 2.0], [0.0, 2.0], [-1e9, 2.0], [-1e9, 2.0]])
    assert effective(log_w).tolist() == pytest.approx([2.0, 4.0])
