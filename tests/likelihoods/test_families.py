"""The likelihoods against their contract, scipy and arithmetic in many digits."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats
from torch import Tensor

from noisin.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    Likelihood,
    Poisson,
)
from tests.likelihoods.test_contract import Spin
from tests.stats import assert_law, assert_mean

F64 = torch.float64
ALL = [Bernoulli(), Gaussian(), Gaussian(variance=0.3), Poisson(), Categorical()]
few = settings(derandomize=True, deadline=None, max_examples=40, database=None)


def generator(seed: int = 1111) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def example(lik: Likelihood, dtype: torch.dtype = F64, shape: tuple[int, ...] = (4, 3)) -> Any:
    """A natural parameter and an observation that fits."""
    s = torch.randn(shape, dtype=dtype, generator=generator())
    return s, lik.sample(s, generator=generator(2))


def gradient(f: Callable[[Tensor], Tensor], s: Tensor) -> Tensor:
    s = s.clone().requires_grad_()
    return torch.autograd.grad(f(s).sum(), s)[0]


# ------------------------------------------------------------------------- values, against scipy


ORACLES = {
    Bernoulli(): lambda s, x: -stats.bernoulli.logpmf(x, special.expit(s)),
    Gaussian(): lambda s, x: -stats.norm.logpdf(x, s, 1),
    Gaussian(variance=0.3): lambda s, x: -stats.norm.logpdf(x, s, math.sqrt(0.3)),
    Poisson(): lambda s, x: -stats.poisson.logpmf(x, np.exp(s)),
    Categorical(): lambda s, x: (
        -np.take_along_axis(special.log_softmax(s, axis=-1), x[..., None], -1)[..., 0]
    ),
}


@pytest.mark.parametrize("lik", ALL, ids=repr)
@pytest.mark.parametrize("shape", [(7,), (5, 4), (3, 5, 4)])
def test_nll_agrees_with_scipy(lik: Likelihood, shape: tuple[int, ...]) -> None:
    s, x = example(lik, shape=shape)
    nll = lik.nll(s=s, x=x)
    assert nll.shape == x.shape == shape[: len(shape) - lik.event_dim]
    np.testing.assert_allclose(nll.numpy(), ORACLES[lik](s.numpy(), x.numpy()), rtol=1e-12)
    single = lik.nll(s=s.float(), x=x)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single, nll.float())


def exact_nll(lik: Likelihood, s: list[float], x: float) -> tuple[float, list[float]]:
    """The nll and its gradient by the definition, in digits enough for exp(-710)."""
    with decimal.localcontext(prec=400):
        S, X = [Decimal(v) for v in s], Decimal(x)
        match lik:
            case Bernoulli():
                e = S[0].exp()
                nll, slope = (1 + e).ln() - S[0] * X, [e / (1 + e) - X]
            case Poisson():
                nll = S[0].exp() - S[0] * X + Decimal(math.factorial(x)).ln()
                slope = [S[0].exp() - X]
            case Categorical():
                e = [v.exp() for v in S]
                nll = sum(e).ln() - S[x]
                slope = [v / sum(e) - (k == x) for k, v in enumerate(e)]
        return float(nll), [float(v) for v in slope]


SIZES = [0.0, 1e-3, 1.0, 17.0, 25.0, 50.0, 80.0, 88.0, 300.0, 710.0, 1e4]
LINE = [*SIZES, *(-v for v in SIZES[1:])]
EXTREMES = [
    *((Bernoulli(), [s], x) for s in LINE for x in (0, 1)),
    *((Poisson(), [s], x) for s in LINE for x in (0, 1, 7)),
    *((Categorical(), [s, r, 0.0], x) for s in LINE for r in (-1e4, s, 5.0) for x in range(3)),
    *((Categorical(), [s], 0) for s in LINE),
]


def assert_exact(lik: Likelihood, found: Tensor, exact: list[float], zero: float = 0.0) -> None:
    """Eight units in the last place, and ``zero`` in absolute terms."""
    precision = torch.finfo(found.dtype)
    expected = torch.tensor(exact, dtype=found.dtype)
    bound = 8 * precision.eps * expected.abs() + precision.tiny + zero
    error = (found.reshape(-1) - expected).abs()
    assert ((error <= bound) | (found.reshape(-1) == expected)).all(), (lik, found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_nll_and_its_gradient_are_exact_up_to_rounding(dtype: torch.dtype) -> None:
    for lik, s, x in EXTREMES:
        s = torch.tensor(s, dtype=dtype)
        exact, slope = exact_nll(lik, s.tolist(), x)
        s = s if lik.event_dim else s[0]
        nll = partial(lik.nll, x=torch.tensor(x))
        # A categorical is a difference of logsumexp and s_x: it is exact in absolute terms.
        zero = 8 * torch.finfo(dtype).eps if lik.event_dim else 0.0
        assert_exact(lik, nll(s), [exact], zero)
        # exp(s) - x passes through zero: it is as exact as float64 holds x.
        zero += 2 * x * torch.finfo(F64).eps if lik == Poisson() else 0.0
        assert_exact(lik, gradient(nll, s), slope, zero)


def test_tiny_nlls_are_not_rounded_to_zero() -> None:
    assert Bernoulli().nll(s=torch.tensor(80.0), x=torch.tensor(1)) > 1e-35
    assert Poisson().nll(s=torch.tensor(-80.0), x=torch.tensor(0)) > 1e-35


def test_log_normalisers_and_moments_at_extreme_values() -> None:
    s = torch.tensor(LINE, dtype=F64)
    np.testing.assert_allclose(Bernoulli().A(s), np.logaddexp(0, LINE), rtol=1e-15)
    p, q = special.expit(s.numpy()), special.expit(-s.numpy())
    np.testing.assert_allclose(Bernoulli().mean(s), p, rtol=1e-15)
    np.testing.assert_allclose(Bernoulli().hessian(s)(torch.ones_like(s)), p * q, rtol=1e-15)
    pair = torch.stack([s, torch.zeros_like(s)], -1)
    # Zero is no special value of a logsumexp, which a shift of s moves: there it is absolute.
    np.testing.assert_allclose(Categorical().A(pair), np.logaddexp(0, LINE), rtol=1e-15, atol=2e-16)
    variance = Categorical().hessian(pair)(torch.tensor([1.0, -1.0], dtype=F64))[:, 0] / 2
    np.testing.assert_allclose(variance, p * q, rtol=1e-12, atol=1e-16)


def test_poisson_overflows_to_infinity() -> None:
    for dtype, s in [(torch.float32, 88.8), (F64, 709.8)]:
        for x in (0, 1, 10**6):
            nll = partial(Poisson().nll, x=torch.tensor(x))
            above = torch.tensor(s, dtype=dtype)
            assert nll(above) == math.inf
            assert gradient(nll, above) == math.inf
            assert nll(above - 0.2).isfinite()
            assert gradient(nll, above - 0.2).isfinite()


def test_a_count_of_zero_at_rate_zero_is_certain() -> None:
    s = torch.tensor([-math.inf, -math.inf])
    assert Poisson().nll(s=s, x=torch.tensor([0, 2])).tolist() == [0.0, math.inf]


def test_no_class_number_means_ignore() -> None:
    x = torch.tensor([[-100]])
    with pytest.raises((IndexError, RuntimeError)):
        torch.func.vmap(lambda x: Categorical().nll(s=torch.zeros(1, 3), x=x))(x)


def test_impossible_classes_have_probability_zero() -> None:
    s = torch.tensor([[0.0, -math.inf, -math.inf]] * 2)
    x = torch.tensor([0, 2])
    assert Categorical().nll(s=s, x=x).tolist() == [0.0, math.inf]
    found = gradient(lambda s: Categorical().nll(s=s, x=x), s)
    assert found.tolist() == [[0.0, 0.0, 0.0], [1.0, 0.0, -1.0]]


def test_gaussian_nll_keeps_the_digits_of_the_difference() -> None:
    s = torch.tensor([1e4, 1e4, -1e4])
    x = torch.tensor([1e4, 1e4 - 0.5, 1e4])
    half_log = 0.5 * math.log(2 * math.pi)
    expected = torch.tensor([half_log, 0.125 + half_log, 2e8 + half_log])
    torch.testing.assert_close(Gaussian().nll(s=s, x=x), expected, rtol=1e-7, atol=0)
    assert gradient(lambda s: Gaussian().nll(s=s, x=x), s).tolist() == [0.0, 0.5, -2e4]


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("lik", ALL, ids=repr)
def test_nll_is_never_nan_nor_negative_over_the_whole_range(
    dtype: torch.dtype, lik: Likelihood
) -> None:
    sizes = torch.tensor([0, 1e-30, 1e-3, 1, 17, 20.1, 37, 88.6, 88.8, 104, 709, 710, 1e3, 1e4])
    line = torch.cat([sizes, -sizes]).to(dtype)
    if lik.event_dim:
        s = torch.cartesian_prod(line, line, line)
        observations = [torch.full((len(s),), k) for k in range(3)]
    else:
        s = line
        observations = [torch.full_like(s, k) for k in (0, 1)]
    for x in observations:
        nll = lik.nll(s=s, x=x)
        assert not nll.isnan().any()
        assert (nll >= 0).all()
        assert not gradient(lambda s, x=x: lik.nll(s=s, x=x), s).isnan().any()


def test_large_counts_keep_their_digits_in_single_precision() -> None:
    x = torch.tensor([100, 1_000, 100_000, 10_000_000])
    s = x.float().log()
    expected = -stats.poisson.logpmf(x.numpy(), np.exp(s.double().numpy()))
    np.testing.assert_allclose(Poisson().nll(s=s, x=x).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("lik", ALL, ids=repr)
def test_half_precision_is_evaluated_in_single(lik: Likelihood, dtype: torch.dtype) -> None:
    s, x = example(lik, dtype)
    nll = lik.nll(s=s, x=x)
    assert nll.dtype == torch.float32
    torch.testing.assert_close(nll, lik.nll(s=s.float(), x=x), rtol=0, atol=0)
    assert gradient(lambda s: lik.nll(s=s, x=x), s).dtype == dtype


@pytest.mark.parametrize("lik", ALL, ids=repr)
@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3), (1, 1)])
def test_empty_and_single_batches(lik: Likelihood, shape: tuple[int, ...]) -> None:
    s, x = example(lik, shape=shape)
    assert lik.nll(s=s, x=x).shape == shape[: len(shape) - lik.event_dim]
    assert gradient(lambda s: lik.nll(s=s, x=x), s).isfinite().all()


def test_the_statistic_of_each_likelihood() -> None:
    like = torch.zeros(2, 3, dtype=F64)
    ones = torch.ones(2, 3)
    assert torch.equal(Bernoulli().T(ones.bool(), like=like), ones.double())
    assert torch.equal(Poisson().T(5 * ones.int(), like=like), 5 * ones.double())
    assert torch.equal(Gaussian(variance=4.0).T(ones, like=like), ones.double() / 4)
    one_hot = Categorical().T(torch.tensor([2, 0], dtype=torch.int32), like=like)
    assert torch.equal(one_hot, torch.tensor([[0, 0, 1], [1, 0, 0]], dtype=F64))


@pytest.mark.parametrize("lik", ALL, ids=repr)
def test_log_nu_is_real_also_of_integers(lik: Likelihood) -> None:
    x = torch.tensor([0, 1])
    assert lik.log_nu(x).dtype == torch.get_default_dtype()
    if not lik.event_dim:
        torch.testing.assert_close(lik.log_nu(x.double()), lik.log_nu(x).double())


@pytest.mark.parametrize("lik", [Bernoulli(), Poisson()], ids=repr)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64, F64])
def test_observations_may_be_integers(lik: Likelihood, dtype: torch.dtype) -> None:
    s, x = torch.tensor([0.3, -1.0]), torch.tensor([1, 0])
    assert torch.equal(lik.nll(s=s, x=x.to(dtype)), lik.nll(s=s, x=x.float()))


# ------------------------------------------------------------------------------------ derivatives


@pytest.mark.parametrize("lik", ALL, ids=repr)
def test_gradcheck(lik: Likelihood) -> None:
    s, x = example(lik)
    s.requires_grad_()
    for f in (lik.A, lik.mean, lambda s: lik.nll(s=s, x=x), lambda s: lik.hessian(s)(0 * s + 1)):
        assert torch.autograd.gradcheck(f, s)
        assert torch.autograd.gradgradcheck(f, s)


@pytest.mark.parametrize("lik", [*ALL, Spin()], ids=repr)
def test_torch_func_and_vmap(lik: Likelihood) -> None:
    s, x = example(lik)
    first = torch.func.grad(lambda s: lik.nll(s=s, x=x).sum())
    torch.testing.assert_close(first(s), gradient(lambda s: lik.nll(s=s, x=x), s))
    torch.testing.assert_close(torch.vmap(lik.nll)(s, x), lik.nll(s, x))
    one_s = torch.vmap(lik.nll, in_dims=(None, 0))(s[0], x)
    torch.testing.assert_close(one_s, lik.nll(s[:1].expand_as(s), x))
    v = torch.ones_like(s)
    _, product = torch.func.vjp(first, s)
    torch.testing.assert_close(product(v)[0], lik.hessian(s)(v))
    torch.testing.assert_close(torch.vmap(lambda s, v: lik.hessian(s)(v))(s, v), lik.hessian(s)(v))


@pytest.mark.parametrize("lik", ALL, ids=repr)
def test_nll_compiles_into_one_graph(lik: Likelihood) -> None:
    s, x = example(lik)
    compiled = torch.compile(lik.nll, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(s, x), lik.nll(s, x))
    torch.testing.assert_close(
        gradient(lambda s: compiled(s, x), s), gradient(lambda s: lik.nll(s, x), s)
    )


@pytest.mark.parametrize("lik", ALL, ids=repr)
def test_shapes_are_computed_without_values(lik: Likelihood) -> None:
    s, x = example(lik)
    assert lik.nll(s.to("meta"), x.to("meta")).shape == lik.nll(s, x).shape


@given(
    s=st.lists(st.floats(-30, 30), min_size=1, max_size=6),
    shift=st.floats(-1e4, 1e4),
    data=st.data(),
)
@few
def test_the_categorical_does_not_see_a_shift(s: Any, shift: float, data: Any) -> None:
    x = torch.tensor(data.draw(st.integers(0, len(s) - 1)))
    shifted = torch.tensor(s, dtype=F64) + shift
    same = shifted - shift  # what is left of s after rounding
    lik = Categorical()
    assert torch.allclose(lik.nll(shifted, x), lik.nll(same, x), rtol=1e-12, atol=1e-14)
    assert torch.allclose(lik.A(shifted), lik.A(same) + shift, rtol=1e-12, atol=1e-11)
    assert torch.allclose(lik.mean(shifted), lik.mean(same), rtol=1e-12, atol=0)
    v = torch.ones_like(same)
    assert lik.hessian(same)(v).abs().max() < 1e-15


@given(s=st.floats(-700, 700), x=st.integers(0, 1))
@few
def test_bernoulli_is_a_categorical_of_two(s: Any, x: Any) -> None:
    pair = torch.tensor([0.0, s], dtype=F64)
    two = Categorical().nll(s=pair, x=torch.tensor(x))
    one = Bernoulli().nll(s=pair[1], x=torch.tensor(x))
    torch.testing.assert_close(one, two, rtol=1e-13, atol=1e-15)


# ---------------------------------------------------------------------------------------- sampling


DRAWS = 20_000


@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.bfloat16])
@pytest.mark.parametrize("s", [-2.0, 0.0, 1.5])
def test_draws_follow_their_law(s: Any, dtype: torch.dtype) -> None:
    at = torch.full((DRAWS,), s, dtype=dtype)
    x = Gaussian(variance=2.0).sample(at, generator=generator())
    assert x.dtype == dtype
    if dtype != torch.bfloat16:  # too coarse for a test of a continuous law
        assert_law(x.numpy(), stats.norm(s, math.sqrt(2)).cdf)
    x = Poisson().sample(at, generator=generator()).double().numpy()
    assert_mean(x, math.exp(s), math.exp(s / 2))
    assert_mean(x == 0, p := math.exp(-math.exp(s)), math.sqrt(p * (1 - p)))
    x = Bernoulli().sample(at, generator=generator()).double().numpy()
    assert_mean(x, p := special.expit(s), math.sqrt(p * (1 - p)))
    x = Categorical().sample(torch.stack([at, 0 * at, -at], -1), generator=generator()).numpy()
    for k, p in enumerate(special.softmax([s, 0, -s])):
        assert_mean(x == k, p, math.sqrt(p * (1 - p)))


@pytest.mark.parametrize("lik", ALL, ids=repr)
def test_no_gradient_flows_through_a_draw(lik: Likelihood) -> None:
    s = torch.randn(4, 3, requires_grad=True)
    x = lik.sample(s)
    assert not x.requires_grad
    assert x.dtype == (torch.int64 if lik.event_dim else s.dtype)
