"""The noise families against scipy's laws, and noises of one's own."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError, dataclass, fields
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from torch.distributions import (
    Cauchy,
    Exponential,
    MultivariateNormal,
    Normal,
    StudentT,
    TransformedDistribution,
    Uniform,
)
from torch.distributions.transforms import TanhTransform

from noisin import noise
from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.noise import ranges
from tests import stats
from tests.laws import CASES, draw, law

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("n", CASES, ids=str)
def test_mean_and_variance(n: noise.Family) -> None:
    eps = draw(n)
    stats.assert_mean(eps, 0.0, n.std)
    if isinstance(n, noise.Bernoulli):
        fourth = (1 - n.gamma) * 1 + n.gamma * (1 / n.gamma - 1) ** 4
    else:
        fourth = (float(law(n).stats(moments="k")) + 3) * n.variance**2
    stats.assert_mean(eps**2, n.variance, math.sqrt(fourth - n.variance**2))


@pytest.mark.parametrize("n", CASES, ids=str)
def test_variance_is_that_of_the_law(n: noise.Family) -> None:
    exact = law(n)
    expected = exact.var() / n.gamma**2 if isinstance(n, noise.Bernoulli) else exact.var()
    assert n.variance == pytest.approx(float(expected), rel=1e-9)
    assert n.std == pytest.approx(math.sqrt(n.variance))
    if not isinstance(n, noise.Bernoulli):
        assert float(exact.mean()) == pytest.approx(0, abs=1e-9 * n.std)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("n", CASES, ids=str)
def test_law(n: noise.Family, dtype: torch.dtype) -> None:
    eps = draw(n, 200_000, dtype)
    if isinstance(n, noise.Bernoulli):
        values = torch.tensor([-1, 1 / n.gamma - 1], dtype=dtype).numpy()
        assert np.isclose(np.unique(eps), values, rtol=1e-6).all()
        eps = (eps > 0).astype(eps.dtype)
    stats.assert_law(eps, law(n).cdf)


@pytest.mark.parametrize("n", [noise.Gaussian(1.0), noise.ChiSquare(0.2)], ids=str)
def test_the_check_of_the_law_can_fail(n: noise.Family) -> None:
    eps = draw(n, 200_000)
    with pytest.raises(AssertionError, match="distance"):
        stats.assert_law(eps * 1.03, law(n).cdf)
    with pytest.raises(AssertionError, match="mean"):
        stats.assert_mean(eps + 0.02 * n.std, 0.0, n.std)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", CASES, ids=str)
def test_finite_in_every_dtype(n: noise.Family, dtype: torch.dtype) -> None:
    like = torch.empty((), dtype=dtype)
    eps = n.sample((3, 5000), like=like)
    assert eps.shape == (3, 5000)
    assert eps.dtype == dtype
    assert eps.isfinite().all()
    # Rounding to half precision moves a draw by at most half a unit in the last place.
    assert abs(eps.double().mean()) < 10 * n.std / math.sqrt(eps.numel()) + 2e-3 * n.std


@pytest.mark.parametrize("n", CASES, ids=str)
def test_same_seed_same_numbers(n: noise.Family) -> None:
    before = torch.get_rng_state()
    assert np.array_equal(draw(n, 100), draw(n, 100))
    assert torch.equal(torch.get_rng_state(), before), (
        "a given generator leaves the global one alone"
    )
    torch.manual_seed(3)
    first = n.sample((50,), like=torch.empty(()))
    torch.manual_seed(3)
    assert torch.equal(n.sample((50,), like=torch.empty(())), first)


@pytest.mark.parametrize("family", noise.FAMILIES.values())
def test_no_noise(family: type[noise.Family]) -> None:
    none = family.from_variance(0.0)
    assert none.gamma == (1.0 if family is noise.Bernoulli else 0.0)
    assert none.variance == none.std == 0
    assert not none.sample((100,), like=torch.empty(())).any()


@pytest.mark.parametrize("family", noise.FAMILIES.values())
@pytest.mark.parametrize("variance", [1e-300, 1e-12, 1e-6])
def test_little_noise_tends_to_none(family: type[noise.Family], variance: float) -> None:
    eps = draw(family.from_variance(variance), 10_000)
    assert np.isfinite(eps).all()
    # Second moments vanish with the variance, though a rare draw of Bernoulli or Chi may not.
    assert np.mean(np.minimum(eps**2, 1)) < 1e3 * variance + 1e-2


@given(v=st.floats(0, 1e6), alpha=st.floats(1e-3, 1e3))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_from_variance_is_the_inverse_of_variance(v: float, alpha: float) -> None:
    for family in noise.FAMILIES.values():
        shape = {"alpha": alpha} if "alpha" in {f.name for f in fields(family)} else {}
        assert family.from_variance(v, **shape).variance == pytest.approx(v, rel=1e-9, abs=1e-15)


def test_families_are_frozen_values() -> None:
    n = noise.Gamma(0.4, alpha=2.0)
    assert n == noise.Gamma(gamma=0.4)
    assert hash(n) == hash(noise.Gamma(0.4))
    assert pickle.loads(pickle.dumps(n)) == n
    assert repr(n) == "Gamma(gamma=0.4, alpha=2.0)"
    assert noise.Gaussian(1) == noise.Gaussian(1.0)
    with pytest.raises(FrozenInstanceError):
        n.gamma = 1.0


def test_one_dict_of_names() -> None:
    assert {family.__name__ for family in noise.FAMILIES.values()} == set(ranges.RANGES)
    for family in noise.FAMILIES.values():
        assert [f.name for f in fields(family)] == list(ranges.RANGES[family.__name__])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: noise.Bernoulli(1.1),
            InvalidValue,
            r"keep probability.*\(0, 1\], got 1.1.*from_v",
        ),
        (lambda: noise.Bernoulli(0), InvalidValue, r"\(0, 1\], got 0\.$"),
        (lambda: noise.Gaussian(10**400), InvalidValue, "got inf"),
        (lambda: noise.Gaussian(1).sample((2,), like=torch.float32), InvalidType, "torch.float32"),
        (lambda: noise.Gaussian(1).sample(2, like=torch.zeros(1)), InvalidType, r"Pass \(2,\)"),
        (lambda: noise.Gaussian(-3), InvalidValue, r"standard deviation.*\[0, inf\), got -3"),
        (lambda: noise.Gaussian(math.nan), InvalidValue, "got nan"),
        (lambda: noise.Gaussian(math.inf), InvalidValue, "got inf"),
        (lambda: noise.Gaussian("1"), InvalidType, "number, got '1'"),
        (lambda: noise.Gaussian(None), InvalidType, "number, got None"),
        (lambda: noise.Gaussian(True), InvalidType, "number, got True"),
        (lambda: noise.Gamma(1.0, alpha=0), InvalidValue, r"shape.*\(0, 1e\+10\], got 0"),
        (lambda: noise.Beta(1.0, alpha=1e11), InvalidValue, r"got 1e\+11"),
        (lambda: noise.ChiSquare(-0.1), InvalidValue, "degrees of freedom"),
        (lambda: noise.Gaussian.from_variance(-1), InvalidValue, "variance is finite and not neg"),
        (lambda: noise.Bernoulli.from_variance(math.inf), InvalidValue, "got inf"),
        (
            lambda: noise.Gaussian(1).sample((2,), like=torch.zeros(1, dtype=int)),
            InvalidType,
            "int64",
        ),
        (
            lambda: noise.Gaussian(1e38).sample((2,), like=torch.zeros(1)),
            InvalidValue,
            "wider dtype",
        ),
        (
            lambda: noise.Bernoulli(1e-5).sample((2,), like=torch.zeros(1).half()),
            InvalidValue,
            "float16 ends at 6.55e\\+04",
        ),
    ],
)
def test_bad_parameters(make: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


class TestFromDistribution:
    def test_centres(self) -> None:
        n = noise.from_distribution(Exponential(2.0))
        assert n.variance == pytest.approx(0.25)
        assert n.std == pytest.approx(0.5)
        eps = draw(n)
        stats.assert_mean(eps, 0, 0.5)
        stats.assert_law(draw(n, 200_000).astype(np.float32), scipy_stats.expon(-0.5, 0.5).cdf)

    def test_draws_from_the_generator_and_leaves_the_global_stream(self) -> None:
        n = noise.from_distribution(Normal(3.0, 1.0))
        before = torch.get_rng_state()
        g = torch.Generator().manual_seed(5)
        first, second = (n.sample((9,), like=torch.empty(()), generator=g) for _ in range(2))
        assert not torch.equal(first, second)
        assert torch.equal(torch.get_rng_state(), before)
        g.manual_seed(5)
        assert torch.equal(n.sample((9,), like=torch.empty(()), generator=g), first)
        assert first.dtype == torch.float32

    @pytest.mark.parametrize(
        ("distribution", "message"),
        [
            (lambda: Cauchy(0.0, 1.0), "finite mean and variance, got mean nan"),
            (lambda: StudentT(1.5), "variance inf"),
            (lambda: Normal(torch.zeros(3), 1.0), r"batch shape \(3,\)"),
            (lambda: MultivariateNormal(torch.zeros(2), torch.eye(2)), r"event shape \(2,\)"),
            (
                lambda: TransformedDistribution(Normal(0.0, 1.0), TanhTransform()),
                "does not define its mean",
            ),
            (lambda: Normal, "got the class Normal"),
            (lambda: 0.5, "got 0.5"),
        ],
    )
    def test_refuses(self, distribution: object, message: str) -> None:
        with pytest.raises((InvalidValue, InvalidType), match=message):
            noise.from_distribution(distribution())


@dataclass(frozen=True)
class Own:
    """A user's noise, with the faults that users make."""

    mean: float = 0.0
    variance: float = 1.0
    fault: str = ""

    def sample(self, shape: Any, *, like: Any, generator: torch.Generator | None = None) -> Any:
        if self.fault == "global stream":
            return torch.randn(shape, dtype=like.dtype)
        if self.fault == "signature":
            raise TypeError("sample() got an unexpected keyword argument 'like'")
        if self.fault == "float64":
            return torch.randn(shape, dtype=torch.float64, generator=generator)
        if self.fault == "last dimension":
            return torch.randn(shape[-1:], dtype=like.dtype, generator=generator)
        draw = torch.randn(shape, dtype=like.dtype, device=like.device, generator=generator)
        eps = self.mean + draw
        match self.fault:
            case "shape":
                return eps[:-1]
            case "dtype":
                return eps.half()
            case "nan":
                return eps.log()
            case "list":
                return eps.tolist()
        return eps


class OwnModule(torch.nn.Module):
    variance = 1.0

    def sample(self, shape: Any, *, like: Any, generator: torch.Generator | None = None) -> Any:
        return torch.randn(shape, dtype=like.dtype, generator=generator)


class TestOwnNoise:
    def test_accepted(self) -> None:
        assert noise.validate(Own()) == Own()
        assert isinstance(Own(), noise.Noise)

    @pytest.mark.parametrize("fault", ["", "global stream"])
    def test_checking_never_touches_the_global_stream(self, fault: str) -> None:
        before = torch.get_rng_state()
        noise.validate(Own(fault=fault))
        assert torch.equal(torch.get_rng_state(), before)

    @pytest.mark.parametrize(
        ("own", "message"),
        [
            (Own(mean=1.0), "must be centred, but 262144 draws have mean"),
            (Own(mean=-0.1), "must be centred"),
            (Own(mean=0.03), "must be centred"),
            (Own(mean=0.35, variance=100.0), "must be centred"),
            (Own(variance=100.0), "variance is stated as 100"),
            (Own(variance=0.01), "variance is stated as 0.01"),
            (Own(fault="float64"), r"asked for .* torch.float32, got .* torch.float64"),
            (Own(fault="last dimension"), r"got \(4,\)"),
            (Own(fault="signature"), r"expected sample\(self, shape, \*, like, generator=None\)"),
            (noise.from_distribution(Normal(1e8, 1.0)), "variance is stated as 1, but"),
            (OwnModule(), "state_dict. Use a frozen dataclass"),
            (Own(variance=-1.0), "variance must be a finite number"),
            (Own(variance=math.nan), "variance must be a finite number"),
            (Own(variance="1"), "variance must be a finite number"),
            (Own(fault="shape"), r"asked for shape \(2, 3, 4\).*got \(1, 3, 4\)"),
            (Own(fault="dtype"), "torch.float16"),
            (Own(fault="nan"), "infinity or NaN"),
            (Own(fault="list"), r"asked for shape"),
            (noise.Gaussian, "the class Gaussian. Pass an instance"),
            ("gaussian", r"FAMILIES\['gaussian'\]"),
            (Normal(0.0, 1.0), "from_distribution"),
            (0.5, "noise.Gaussian"),
        ],
    )
    def test_refused(self, own: object, message: str) -> None:
        with pytest.raises((InvalidValue, InvalidType), match=message):
            noise.validate(own)

    def test_a_subclass_of_a_family_is_a_noise_of_ones_own(self) -> None:
        class Mine(noise.Gaussian):
            pass

        assert noise.validate(Mine(0.5)).variance == 0.25
        with pytest.raises(InvalidValue, match="standard deviation"):
            Mine(-1)

    def test_under_another_default_device(self) -> None:
        with torch.device("meta"):
            noise.validate(Own())
            with pytest.raises(InvalidValue, match="meta"):
                noise.from_distribution(Uniform(0.0, 1.0, validate_args=False))

    def test_a_rare_and_large_noise_is_not_refused(self) -> None:
        noise.validate(noise.from_distribution(Uniform(-1.0, 1.0)))
        noise.validate(noise.from_distribution(StudentT(2.5)))


CONTINUOUS = [n for n in CASES if not isinstance(n, noise.Bernoulli)]


@pytest.mark.parametrize("n", CONTINUOUS, ids=str)
def test_log_prob(n: noise.Family) -> None:
    eps = torch.from_numpy(draw(n, 1000))
    ends = np.array(law(n).support())
    near = np.abs(eps.numpy()[:, None] - ends).min(1) < 1e-3 * n.std  # a pole there is steep
    eps = eps[~torch.from_numpy(near)]
    expected = law(n).logpdf(eps.numpy())
    np.testing.assert_allclose(n.log_prob(eps).numpy(), expected, rtol=1e-6, atol=1e-6)
    assert n.log_prob(eps.float()).dtype == torch.float32


@pytest.mark.parametrize("n", [noise.Gamma(0.5), noise.Beta(1.0), noise.ChiSquare(2.0)], ids=str)
def test_density_is_zero_outside_the_support(n: noise.Family) -> None:
    assert n.log_prob(torch.tensor(-100.0)) == -math.inf


@pytest.mark.parametrize(
    "n", [noise.Bernoulli(0.5), *(f(0.0) for f in (noise.Gaussian, noise.Logistic))]
)
def test_no_density(n: noise.Family) -> None:
    with pytest.raises(Unsupported, match="has no density"):
        n.log_prob(torch.zeros(1))


@pytest.mark.parametrize("n", CASES, ids=str)
def test_exponential_moments(n: noise.Family) -> None:
    """E[exp(t eps)] is finite just inside the interval, and infinite just outside."""
    low, high = n.exponential_moments
    assert low < 0 < high
    if isinstance(n, noise.Bernoulli):
        assert (low, high) == (-math.inf, math.inf)
        return
    for end in (low, high):
        if math.isinf(end):
            continue
        x = np.sign(end) * 1e6 * max(n.std, 1 / abs(end)) * np.array([1, 2])
        for factor, grows in ((0.98, False), (1.02, True)):  # the tail of the integrand
            near, far = (
                n.log_prob(torch.from_numpy(x)) + factor * end * torch.from_numpy(x)
            ).tolist()
            assert (far > near) == grows


@pytest.mark.parametrize(
    "n", [noise.ChiSquare(0.1), noise.Gamma(1000.0, alpha=1e-3), noise.Beta(1.0, alpha=1e-9)]
)
def test_rare_large_draws_that_a_dtype_cannot_hold_are_refused(n: noise.Family) -> None:
    largest = n._largest
    assert largest > 40 * n.std / 2
    if largest > torch.finfo(torch.float16).max:
        with pytest.raises(InvalidValue, match="float16 ends at"):
            n.sample((2,), like=torch.zeros(1).half())
    assert np.abs(draw(n, 400_000)).max() < largest
