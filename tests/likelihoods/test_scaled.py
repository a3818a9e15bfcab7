"""Likelihoods with a learnt scale, against scipy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from noisin.errors import InvalidType, InvalidValue
from noisin.likelihoods import Gaussian, LocationScale, ScaledGaussian, StudentT
from noisin.likelihoods.scaled import SMALLEST_SCALE
from noisin.models import LearntScale
from tests.stats import assert_law

BOTH = [ScaledGaussian(), StudentT()]
F64 = torch.float64


def parameters(lik: LocationScale, shape: tuple[int, ...] = (5,), O: int = 3) -> torch.Tensor:  # noqa: E741
    random = torch.Generator().manual_seed(3)
    return torch.randn(*shape, lik.parameters * O, dtype=F64, generator=random)


def law(lik: LocationScale, s: torch.Tensor) -> Any:
    """scipy's distribution with the parameters s."""
    mu, r, *q = s.chunk(lik.parameters, -1)
    sigma = (F.softplus(r) + SMALLEST_SCALE).numpy()
    if not q:
        return stats.norm(mu.numpy(), sigma)
    return stats.t((2 + F.softplus(q[0])).numpy(), mu.numpy(), sigma)


@pytest.mark.parametrize("lik", BOTH)
def test_the_density_is_that_of_scipy(lik: LocationScale) -> None:
    s = parameters(lik)
    x = 5 * torch.randn(5, 3, dtype=F64, generator=torch.Generator().manual_seed(4))
    expected = -law(lik, s).logpdf(x.numpy())
    np.testing.assert_allclose(lik.nll(s, x).numpy(), expected, rtol=1e-9)
    np.testing.assert_allclose(lik.mean(s).numpy(), law(lik, s).mean(), rtol=1e-9)


@pytest.mark.parametrize("lik", BOTH)
def test_gradients(lik: LocationScale) -> None:
    s, x = parameters(lik, (2,)).requires_grad_(), torch.randn(2, 3, dtype=F64)
    assert torch.autograd.gradcheck(lambda s: lik.nll(s, x), s)


@pytest.mark.parametrize("lik", BOTH)
def test_samples_follow_the_law(lik: LocationScale) -> None:
    s = parameters(lik, (), O=1)
    drawn = lik.sample(s.expand(20_000, -1), torch.Generator().manual_seed(5))
    assert drawn.shape == (20_000, 1)
    assert_law(drawn[:, 0].numpy(), law(lik, s).cdf)


@pytest.mark.parametrize("lik", BOTH)
def test_a_value_that_never_changes_has_a_bounded_density(lik: LocationScale) -> None:
    s = torch.full((1, lik.parameters), -1e3)
    s[:, 0] = 7.0
    least = lik.nll(s, torch.tensor([[7.0]]))
    assert least.item() > math.log(SMALLEST_SCALE)
    assert least.isfinite().all()


def test_many_degrees_of_freedom_are_the_normal_law() -> None:
    s = parameters(StudentT())
    s[:, 6:] = 1e6
    x = torch.randn(5, 3, dtype=F64)
    torch.testing.assert_close(
        StudentT().nll(s, x), ScaledGaussian().nll(s[:, :6], x), rtol=1e-4, atol=1e-4
    )


def test_a_head_starts_at_scale_one() -> None:
    head = LearntScale(4, 2, ScaledGaussian(), bias=torch.tensor([1.0, -2.0]))
    s = head.predict(torch.zeros(3, 1, 4))
    x = torch.randn(3, 1, 2)
    expected = Gaussian().nll(torch.tensor([1.0, -2.0]).expand(3, 1, 2), x)
    torch.testing.assert_close(head.likelihood.nll(s, x), expected)


def test_what_does_not_fit() -> None:
    lik = StudentT()
    with pytest.raises(InvalidValue, match="expected 3 parameters for each observation"):
        lik.nll(torch.zeros(2, 4), torch.zeros(2, 1))
    with pytest.raises(InvalidValue, match=r"describes x of shape \(2, 1\), got \(2, 3\)"):
        lik.nll(torch.zeros(2, 3), torch.zeros(2, 3))
    with pytest.raises(InvalidValue, match="x must be a finite number, got nan"):
        lik.nll(torch.zeros(2, 3), torch.tensor([[1.0], [math.nan]]))
    with pytest.raises(InvalidType, match="expected a likelihood with a learnt scale"):
        LearntScale(4, 2, Gaussian())
    with pytest.raises(InvalidValue, match=r"LearntScale: expected a bias of shape \(2,\)"):
        LearntScale(4, 2, lik, bias=torch.zeros(3))
