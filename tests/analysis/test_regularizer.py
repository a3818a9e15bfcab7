"""The explicit regularizer: closed form, Monte Carlo, and where they part."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from noisin import analysis, likelihoods, noise
from noisin.analysis.regularizer import curvature_by_operator, output_curvature
from noisin.errors import InvalidValue, NoisinError
from tests.likelihoods.test_linear import LargestTensor
from tests.pairwise import PRODUCTS, table

H, O = 4, 7  # noqa: E741
D64: dict[str, Any] = {"dtype": torch.float64}
LIKELIHOODS = [
    *(likelihoods.Bernoulli(), likelihoods.Gaussian(0.5)),
    *(likelihoods.Poisson(), likelihoods.Categorical()),
]
MODES = ["multiplicative", "additive"]


def problem(scale: float = 0.5) -> tuple[Tensor, Tensor, Tensor]:
    """V, h and a bias."""
    return scale * torch.randn(H, O, **D64), torch.rand(3, 2, H, **D64), torch.randn(O, **D64)


def full_hessian(lik: Any, s: Tensor) -> Tensor:
    """``∇²A`` as a matrix, by differentiating A twice."""
    return torch.func.jacrev(torch.func.jacrev(lambda s: lik.A(s).sum()))(s)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lik", LIKELIHOODS, ids=str)
def test_closed_form_is_the_trace_of_the_paper(lik: Any, mode: Any, with_bias: bool) -> None:
    """``½ tr Cov(Bᵀz)`` with ``B = V √∇²A``, matrix by matrix."""
    V, h, bias = problem()
    law, b = noise.Gaussian(0.3), bias if with_bias else 0
    expected = torch.zeros((), **D64)
    for row in h.reshape(-1, H):
        hessian = full_hessian(lik, row @ V + b)
        variance = law.variance * (
            row.square() if mode == "multiplicative" else torch.ones_like(row)
        )
        covariance = V.T @ torch.diag(variance) @ V  # of Vᵀz
        expected += 0.5 * torch.trace(covariance @ hessian)
    found = analysis.explicit_regularizer(
        lik, V, h, law, mode, K=2, bias=bias if with_bias else None
    )
    assert_close(found.closed_form, expected)


@pytest.mark.parametrize("chunk_size", [1, 3, 7, 100])
@pytest.mark.parametrize("lik", LIKELIHOODS, ids=str)
def test_chunks_and_the_general_operator_agree(lik: Any, chunk_size: int) -> None:
    V, h, bias = problem()
    rows = h.reshape(-1, H)
    found = output_curvature(lik, V, h, bias, chunk_size)
    assert found.shape == h.shape
    assert_close(found.reshape(-1, H), curvature_by_operator(lik, V, rows, bias))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lik", LIKELIHOODS, ids=str)
def test_gradcheck(lik: Any, mode: Any) -> None:
    V, h, bias = (t.requires_grad_() for t in problem())
    penalty = analysis.Penalty(lik, noise.Gaussian(0.7), mode, chunk_size=3)
    assert torch.autograd.gradcheck(penalty, (h, V, bias))
    assert torch.autograd.gradgradcheck(penalty, (h, V, bias), fast_mode=True)


@pytest.mark.parametrize("lik", LIKELIHOODS, ids=str)
def test_no_tensor_holds_all_outputs(lik: Any) -> None:
    V, h = torch.randn(3, 400, requires_grad=True), torch.randn(50, 3, requires_grad=True)
    sizes = {}
    for chunk_size in (20, 400):
        with LargestTensor() as largest:
            analysis.Penalty(lik, noise.Gaussian(1.0), chunk_size=chunk_size)(h, V).sum().backward()
        sizes[chunk_size] = largest.size
    assert sizes[20] < 50 * 400 // 8
    assert sizes[400] >= 50 * 400


@pytest.mark.parametrize(
    ("lik", "family", "mode"),
    table(LIKELIHOODS, [*noise.FAMILIES.values()], MODES)[:: 1 if PRODUCTS else 2],
)
def test_small_outputs_agree_with_the_closed_form(lik: Any, family: Any, mode: Any) -> None:
    """What must be small is ``eps h V``. A small variance is not enough for every family: that of
    Bernoulli, Beta and Chi-square falls because draws of the size of one get rare, not small.
    """
    V, h, bias = problem(0.05)
    reg = analysis.explicit_regularizer(
        lik, V, h, family.from_variance(0.2), mode, K=2500, bias=bias
    )
    # The next order is of the size of V times the skewness of the noise, below a tenth here.
    assert abs(reg.monte_carlo - reg.closed_form) < 6 * reg.stderr + 0.1 * reg.closed_form
    assert reg.stderr < 0.05 * reg.closed_form


@pytest.mark.parametrize("family", noise.FAMILIES.values())
def test_as_the_variance_falls_the_closed_form_is_exact_but_for_rare_events(family: Any) -> None:
    V, h, _ = problem(2.0)
    law = family.from_variance(1e-4)
    reg = analysis.explicit_regularizer(likelihoods.Bernoulli(), V, h, law, K=5000)
    error = abs(reg.monte_carlo / reg.closed_form - 1)
    if family in {noise.Bernoulli, noise.Beta, noise.ChiSquare}:
        assert error > 0.05
    else:
        assert error < 0.05


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", noise.FAMILIES.values())
def test_with_a_gaussian_likelihood_it_is_exact_for_any_noise(family: Any, mode: Any) -> None:
    V, h, _ = problem(2.0)
    lik, law = likelihoods.Gaussian(0.7), family.from_variance(1.5)
    reg = analysis.explicit_regularizer(lik, V, h, law, mode, K=2000)
    w = h.square() if mode == "multiplicative" else torch.ones_like(h)
    assert_close(reg.closed_form, (1.5 / (2 * 0.7) * w * V.square().sum(1)).sum())
    assert abs(reg.monte_carlo - reg.closed_form) < 6 * reg.stderr


def test_large_noise_and_weights_leave_the_closed_form() -> None:
    V, h, _ = problem(4.0)
    reg = analysis.explicit_regularizer(
        likelihoods.Categorical(), V, h, noise.Gaussian(1.0), K=2000
    )
    assert abs(reg.closed_form / reg.monte_carlo - 1) > 0.3


@pytest.mark.parametrize("lik", LIKELIHOODS, ids=str)
def test_never_negative_and_sharper_than_plain_sampling(lik: Any) -> None:
    V, h, _ = problem()
    law = noise.Gaussian(0.1)
    singles = [
        analysis.explicit_regularizer(lik, V, h[:1, :1], law, K=1).monte_carlo for _ in range(200)
    ]
    assert min(singles) >= -1e-15
    bregman = analysis.explicit_regularizer(lik, V, h, law, K=2000).stderr
    z = h * (1 + law.sample((2000, *h.shape), like=h))
    plain = (lik.A(z @ V) - lik.A(h @ V)).flatten(1).sum(1).std() / 2000**0.5
    assert bregman < plain / 3


def test_reproducible_by_generator() -> None:
    V, h, _ = problem()
    first, second = (
        analysis.explicit_regularizer(
            likelihoods.Poisson(), V, h, noise.Gaussian(0.1),
            generator=torch.Generator().manual_seed(1),
        ).monte_carlo
        for _ in range(2)
    )  # fmt: skip
    assert torch.equal(first, second)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", noise.FAMILIES.values())
def test_warning_where_the_exact_value_is_infinite(family: Any, mode: Any) -> None:
    V, h, _ = problem(3.0)
    heavy = family.__name__ in {"Laplace", "Logistic", "Gumbel", "Gamma", "ChiSquare"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        analysis.explicit_regularizer(likelihoods.Poisson(), V, h, family.from_variance(2), mode, 2)
        assert bool(caught) == heavy
        if heavy:
            assert "infinite" in str(caught[0].message)
        caught.clear()
        analysis.explicit_regularizer(
            likelihoods.Poisson(), V / 100, h, family.from_variance(0.1), mode, 2
        )
        analysis.explicit_regularizer(
            likelihoods.Bernoulli(), V, h, family.from_variance(2), mode, 2
        )
        assert not caught


def test_the_penalty_trains_as_noise_does() -> None:
    """Logistic regression on fixed states: the penalty's optimum is the noise's."""
    torch.manual_seed(0)
    h, x = torch.randn(200, 3, **D64), (torch.rand(200, 1) < 0.8).double()
    lik, law = likelihoods.Bernoulli(), noise.Gaussian(0.3)
    penalty = analysis.Penalty(lik, law)
    optima = {}
    for name in ("plain", "penalty", "noise"):
        V = torch.zeros(3, 1, **D64, requires_grad=True)
        optimizer = torch.optim.LBFGS([V], max_iter=100, line_search_fn="strong_wolfe")
        z = (h * (1 + law.sample((2000, 200, 3), like=h))) if name == "noise" else h

        def closure(V: Any = V, z: Any = z, name: Any = name, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            nll = lik.nll(s=z @ V, x=x.expand_as(z @ V)).flatten(-2).sum(-1).mean()
            loss = nll + (penalty(h, V).sum() if name == "penalty" else 0)
            loss.backward()
            return loss

        optimizer.step(closure)
        optima[name] = V.detach()
    far = (optima["plain"] - optima["noise"]).norm()
    assert (optima["penalty"] - optima["noise"]).norm() < 0.25 * far


def test_bad_input() -> None:
    V, h, _ = problem()
    with pytest.raises(
        InvalidValue, match=r"h \(..., H\) and V \(H, O\), got \(3, 2, 4\) and \(7, 4\)"
    ):
        analysis.explicit_regularizer(likelihoods.Poisson(), V.t(), h, noise.Gaussian(1.0))
    with pytest.raises(InvalidValue, match="mode must be"):
        analysis.Penalty(likelihoods.Poisson(), noise.Gaussian(1.0), "product")


@pytest.mark.parametrize("gamma", [1e-3, 1e-4])
def test_small_noise_in_float32_is_not_lost_to_rounding(gamma: float) -> None:
    h, V = torch.randn(40, 20), torch.randn(20, 1000)
    reg = analysis.explicit_regularizer(
        likelihoods.Categorical(), V, h, noise.Gaussian(gamma), K=50
    )
    assert abs(reg.monte_carlo / reg.closed_form - 1) < 0.1


def test_the_penalty_is_never_negative() -> None:
    h, V = 10 * torch.randn(40, 20), 3 * torch.randn(20, 1000)
    assert analysis.Penalty(likelihoods.Categorical(), noise.Gaussian(1.0))(h, V).min() >= 0


def test_under_torch_func() -> None:
    V, h, _ = problem()
    penalty = analysis.Penalty(likelihoods.Categorical(), noise.Gaussian(0.5))
    found = torch.func.grad(lambda V: penalty(h, V).sum())(V)
    V.requires_grad_()
    assert_close(found, torch.autograd.grad(penalty(h, V).sum(), V)[0])


def test_a_finite_value_with_an_infinite_error_warns() -> None:
    h, V = torch.ones(1, 1), torch.full((1, 1), 1.2)
    with pytest.warns(UserWarning, match="the variance of its estimate is not"):
        analysis.explicit_regularizer(likelihoods.Poisson(), V, h, noise.Laplace(1.0), K=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"K": 0}, "K must be a whole number of noise samples, 1 or more, got 0"),
        ({"K": 1.5}, "got 1.5"),
        ({"bias": torch.zeros(1)}, r"bias of shape \(7,\), got \(1,\)"),
        ({"h": torch.zeros(0, H)}, r"got \(0, 4\)"),
        ({"noise": None}, "got None"),
        ({"likelihood": "categorical"}, "expected a likelihood"),
    ],
)
def test_bad_arguments(change: dict[str, Any], message: str) -> None:
    V, h, _ = problem()
    arguments = {"likelihood": likelihoods.Poisson(), "V": V, "h": h, "noise": noise.Gaussian(0.1)}
    with pytest.raises(NoisinError, match=message):
        analysis.explicit_regularizer(**{**arguments, **change})
    with pytest.raises(NoisinError, match="chunk_size"):
        analysis.Penalty(likelihoods.Poisson(), noise.Gaussian(0.1), chunk_size=0)
