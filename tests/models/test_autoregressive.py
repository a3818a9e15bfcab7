"""The autoregressive head: a distribution over whole frames, factor by factor."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from noisin.data import Batch
from noisin.errors import NoisinError
from noisin.likelihoods import Bernoulli, Categorical, Gaussian
from noisin.models import Dense
from noisin.models.autoregressive import Autoregressive
from tests import stats

H, D = 3, 4


def head(hidden: int = 7) -> Autoregressive:
    torch.manual_seed(0)
    found = Autoregressive(H, D, Bernoulli(), hidden=hidden).double()
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.normal_()
    return found


def frames() -> torch.Tensor:
    """All frames of D binary values, as one sequence."""
    return torch.tensor(list(product([0.0, 1.0], repeat=D)), dtype=torch.float64).unsqueeze(1)


def log_p(found: Autoregressive, z: torch.Tensor) -> torch.Tensor:
    x = frames()
    nll, _ = found.nll(z.expand(len(x), 1, H), Batch(x, x))
    return -nll.detach().squeeze(1)


@pytest.mark.parametrize("hidden", [1, 3, 7])
def test_the_probabilities_of_all_frames_sum_to_one(hidden: int) -> None:
    for z in torch.randn(3, H, dtype=torch.float64):
        total = log_p(head(hidden), z).exp().sum()
        torch.testing.assert_close(total, torch.ones((), dtype=torch.float64))


def test_a_value_depends_on_those_before_it_and_on_no_other() -> None:
    x = torch.rand(D, dtype=torch.float64)
    found, z = head(), torch.randn(H, dtype=torch.float64)
    slopes = torch.autograd.functional.jacobian(lambda x: found.parameters_of(z, x), x)
    assert (slopes.triu() == 0).all()
    assert (slopes[-1, :-1] != 0).all()


def test_the_values_of_a_frame_are_not_independent() -> None:
    p = log_p(head(), torch.randn(H, dtype=torch.float64)).exp()
    x = frames().squeeze(1)
    mean = (p.unsqueeze(1) * x).sum(0)
    covariance = (p.view(-1, 1, 1) * x.unsqueeze(2) * x.unsqueeze(1)).sum(0) - mean.outer(mean)
    assert covariance.fill_diagonal_(0).abs().max() > 0.01


def test_it_starts_as_the_linear_head() -> None:
    torch.manual_seed(0)
    linear, bias = Dense(H, D, Bernoulli(), bias=torch.arange(4.0)), torch.arange(4.0)
    found = Autoregressive(H, D, Bernoulli(), bias=bias)
    found.linear.load_state_dict(linear.state_dict())
    z, x = torch.randn(5, 2, H), torch.rand(5, 2, D).round()
    scored = torch.rand(5, 2) < 0.5
    batch = Batch(x, x, scored)
    torch.testing.assert_close(found.nll(z, batch), linear.nll(z, batch))
    torch.testing.assert_close(found.mean_nll(z, batch), linear.mean_nll(z, batch))


def test_samples_have_these_probabilities() -> None:
    found, z, many = head(), torch.randn(H, dtype=torch.float64), 4000
    random = torch.Generator().manual_seed(2)
    drawn = found.sample(z.expand(many, H), generator=random).detach()
    for frame, expected in zip(frames().squeeze(1), log_p(found, z).exp().tolist(), strict=True):
        hits = (drawn == frame).all(1).double().numpy()
        stats.assert_mean(hits, expected, (expected * (1 - expected)) ** 0.5)


def test_other_values_and_wrong_ones() -> None:
    x = torch.randn(5, 2, D)
    nll, _ = Autoregressive(H, D, Gaussian(0.5)).nll(torch.randn(5, 2, H), Batch(x, x))
    assert nll.shape == (5, 2)
    with pytest.raises(NoisinError, match="a target of Categorical is one value"):
        Autoregressive(H, D, Categorical())
    with pytest.raises(NoisinError, match="out_features must be a whole number, 2 or more, got 1"):
        Autoregressive(H, 1, Bernoulli())
    with pytest.raises(NoisinError, match=r"Use sample\(z\)"):
        head().predict(torch.randn(1, 1, H))
