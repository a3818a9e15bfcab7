"""Every likelihood keeps the contract that is offered to users, and what breaks it is caught."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from noisin.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, Poisson
from noisin.testing import LikelihoodContract

F64 = torch.float64


def generator(seed: int = 1111) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class TestBernoulliContract(LikelihoodContract):
    def likelihood(self) -> Likelihood:
        return Bernoulli()

    def support(self) -> Any:
        return torch.arange(2), torch.ones(2)


class TestGaussianContract(LikelihoodContract):
    def likelihood(self) -> Likelihood:
        return Gaussian(variance=0.3)

    def support(self) -> Any:
        grid = torch.linspace(-12, 12, 2001, dtype=F64)
        return grid, torch.full_like(grid, 24 / 2000)


class TestPoissonContract(LikelihoodContract):
    def likelihood(self) -> Likelihood:
        return Poisson()

    def support(self) -> Any:
        return torch.arange(100), torch.ones(100)


class TestCategoricalContract(LikelihoodContract):
    def likelihood(self) -> Likelihood:
        return Categorical()

    def natural_parameters(self) -> Any:
        return torch.randn(2, 3, 4, dtype=F64, generator=generator())

    def support(self) -> Any:
        return torch.arange(4), torch.ones(4)


class Spin(Likelihood):
    """x = ±1: a likelihood of one's own, with the base's nll and hessian."""

    def __repr__(self) -> str:
        return "Spin()"

    def A(self, s: Tensor) -> Tensor:  # noqa: N802
        return torch.logaddexp(s, -s)

    def T(self, x: Tensor, like: Tensor) -> Tensor:  # noqa: N802
        return x.to(like.dtype)

    def mean(self, s: Tensor) -> Tensor:
        return s.tanh()

    def sample(self, s: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return 2 * torch.bernoulli(torch.sigmoid(2 * s), generator=generator) - 1


class TestSpinContract(LikelihoodContract):
    def likelihood(self) -> Likelihood:
        return Spin()

    def support(self) -> Any:
        return torch.tensor([-1, 1]), torch.ones(2)


class Vector(Likelihood):
    """x ~ N(s, 1) over the last dimension together: event_dim 1, and x of the shape of s."""

    event_dim = 1

    def A(self, s: Tensor) -> Tensor:  # noqa: N802
        return s.square().sum(-1) / 2

    def T(self, x: Tensor, like: Tensor) -> Tensor:  # noqa: N802
        return x.to(like.dtype)

    def log_nu(self, x: Tensor) -> Tensor:
        return -x.square().sum(-1) / 2 - x.shape[-1] / 2 * math.log(2 * math.pi)

    def mean(self, s: Tensor) -> Tensor:
        return s

    def sample(self, s: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return s + torch.randn(s.shape, dtype=s.dtype, generator=generator)


class TestVectorContract(LikelihoodContract):
    def likelihood(self) -> Likelihood:
        return Vector()

    def natural_parameters(self) -> Any:
        return torch.randn(3, 2, dtype=F64, generator=generator())

    def support(self) -> Any:
        axis = torch.linspace(-9, 9, 121, dtype=F64)
        grid = torch.cartesian_prod(axis, axis)
        return grid, torch.full((len(grid),), (18 / 120) ** 2, dtype=F64)


class WrongMean(Spin):
    def mean(self, s: Tensor) -> Tensor:
        return (1.001 * s).tanh()


class WrongHessian(Spin):
    def hessian(self, s: Tensor) -> Any:
        return lambda v: 1.001 * (1 - s.tanh() ** 2) * v


class NegativeHessian(Spin):
    def hessian(self, s: Tensor) -> Any:
        return lambda v: -(1 - s.tanh() ** 2) * v


class AsymmetricHessian(Spin):
    def hessian(self, s: Tensor) -> Any:
        return lambda v: v.roll(1, -1) + 0 * s


class Unnormalised(Spin):
    def log_nu(self, x: Tensor) -> Tensor:
        return torch.full_like(x, 0.01)


class OtherNll(Spin):
    def nll(self, s: Tensor, x: Tensor) -> Tensor:
        return super().nll(s, x) + 0.01


class NoGradient(Spin):
    def nll(self, s: Tensor, x: Tensor) -> Tensor:
        return super().nll(s, x).detach() + 0 * s


class WrongA(Spin):
    def A(self, s: Tensor) -> Tensor:  # noqa: N802
        return super().A(s) + 0.01 * s

    def nll(self, s: Tensor, x: Tensor) -> Tensor:
        return Spin().nll(s, x)


class BiasedDraws(Spin):
    def sample(self, s: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return super().sample(s + 0.05, generator)


class NarrowDraws(Spin):
    def sample(self, s: Tensor, generator: torch.Generator | None = None) -> Tensor:
        first, second = super().sample(s, generator), super().sample(s, generator)
        return (first + second) / 2


class GlobalDraws(Spin):
    def sample(self, s: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return super().sample(s, generator=None)


@pytest.mark.parametrize(
    ("wrong", "test"),
    [
        (WrongMean, "test_mean_is_the_mean_of_x"),
        (WrongHessian, "test_hessian_of_A_is_the_variance_of_T"),
        (WrongHessian, "test_hessian_is_the_second_derivative_of_A"),
        (NegativeHessian, "test_hessian_is_symmetric_and_positive"),
        (AsymmetricHessian, "test_hessian_is_symmetric_and_positive"),
        (Unnormalised, "test_the_density_is_complete"),
        (OtherNll, "test_the_density_is_complete"),
        (OtherNll, "test_nll_is_that_of_the_exponential_family"),
        (NoGradient, "test_nll_is_that_of_the_exponential_family"),
        (WrongA, "test_gradient_of_A_is_the_mean_of_T"),
        (WrongA, "test_nll_is_that_of_the_exponential_family"),
        (BiasedDraws, "test_draws_have_the_mean_and_the_variance"),
        (NarrowDraws, "test_draws_have_the_mean_and_the_variance"),
        (GlobalDraws, "test_draws_are_reproducible"),
    ],
)
def test_the_contract_catches(wrong: Any, test: str) -> None:
    contract = TestSpinContract()
    getattr(contract, test)()
    contract.likelihood = wrong  # type: ignore[method-assign]
    with pytest.raises(AssertionError):
        getattr(contract, test)()


def test_the_contract_asks_for_its_hooks() -> None:
    with pytest.raises(NotImplementedError, match=r"likelihood\(\)"):
        LikelihoodContract().likelihood()
    with pytest.raises(NotImplementedError, match=r"support\(\)"):
        LikelihoodContract().support()
