"""The noise families against scipy's laws, and noises of one's own."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError, dataclass, fields

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

from noisin import noise, parameters
from noisin.errors import InvalidType, InvalidValue
from noisin.source import Source
from tests import stats

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
DRAWS = 400_000


def law(n: noise.Family) -> object:
    """The law of eps as a scipy distribution, from the paper's table by loc and scale."""
    g, a, s = n.gamma, getattr(n, "alpha", math.nan), scipy_stats
    match n:
        case noise.Gaussian():
            return s.norm(0, g)
        case noise.Bernoulli():
            return s.rv_discrete(values=([0, 1], [1 - g, g]))
        case noise.Gamma():
            return s.gamma(a, loc=-math.sqrt(a) * g, scale=g / math.sqrt(a))
        case noise.Gumbel():
            scale = g * math.sqrt(6) / math.pi
            return s.gumbel_r(loc=-np.euler_gamma * scale, scale=scale)
        case noise.Laplace():
            return s.laplace(scale=g / math.sqrt(2))
        case noise.Logistic():
            return s.logistic(scale=g * math.sqrt(3) / math.pi)
        case noise.Beta():
            k = (a + g) * math.sqrt((a + g + 1) / a)
            return s.beta(a, g, loc=-k * a / (a + g), scale=k)
        case noise.ChiSquare():
            return s.chi2(g, loc=-g / math.sqrt(2), scale=1 / math.sqrt(2))
    raise AssertionError(n)


CASES = [
    *(noise.Gaussian(g) for g in (1e-6, 0.1, 1.1, 1.37)),
    *(noise.Bernoulli(g) for g in (0.01, 0.33, 0.41, 0.8)),
    *(noise.Gamma(g) for g in (0.1, 0.4, 1.39)),
    *(noise.Gamma(1.0, alpha=a) for a in (0.05, 0.5, 1.0, 3.7, 1e6)),
    *(noise.Gumbel(g) for g in (0.1, 1.06, 1.39)),
    *(noise.Laplace(g) for g in (0.1, 1.06, 1.39)),
    *(noise.Logistic(g) for g in (0.1, 1.06, 1.39)),
    *(noise.Beta(g) for g in (1e-3, 0.1, 1.07, 1.5)),
    *(noise.Beta(g, alpha=a) for g, a in ((1.0, 0.05), (0.5, 0.5), (0.02, 0.01), (40.0, 3.0))),
    *(noise.ChiSquare(g) for g in (0.01, 0.2, 1.2, 1.5, 3.0, 1e4)),
]


def draw(n: noise.Noise, size: int = DRAWS, dtype: torch.dtype = torch.float64) -> np.ndarray:
    g = torch.Generator().manual_seed(1111)
    eps = n.sample((size,), like=torch.empty((), dtype=dtype), generator=g)
    assert eps.dtype == dtype
    return eps.numpy()


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("edge", ["zero", "almost one"])
@pytest.mark.parametrize("n", CASES, ids=str)
def test_finite_at_the_ends_of_the_uniform(
    n: noise.Family, dtype: torch.dtype, edge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.rand returns exactly 0 once in 2²⁴ draws: no test waits for that, so it is forced."""

    def extreme(shape: tuple[int, ...], *, dtype: torch.dtype, **_: object) -> torch.Tensor:
        value = 0.0 if edge == "zero" else 1 - torch.finfo(dtype).eps / 2
        return torch.full(shape, value, dtype=dtype)

    monkeypatch.setattr(torch, "rand", extreme)
    assert n.sample((100,), like=torch.empty((), dtype=dtype)).isfinite().all()


def test_uniform_is_inside_the_open_interval() -> None:
    u = Source((2_000_000,), torch.float32, torch.device("cpu"), None).uniform()
    assert u.min() > 0
    assert u.max() < 1


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
        n.gamma = 1.0  # type: ignore[misc]


def test_one_dict_of_names() -> None:
    assert {family.__name__ for family in noise.FAMILIES.values()} == set(parameters.RANGES)
    for family in noise.FAMILIES.values():
        assert [f.name for f in fields(family)] == list(parameters.RANGES[family.__name__])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: noise.Bernoulli(1.1),
            InvalidValue,
            r"keep probability.*\(0, 1\], got 1.1.*from_v",
        ),
        (lambda: noise.Bernoulli(0), InvalidValue, r"\(0, 1\], got 0"),
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
        make()  # type: ignore[operator]


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
                "does not know its mean",
            ),
            (lambda: Normal, "got the class Normal"),
            (lambda: 0.5, "got 0.5"),
        ],
    )
    def test_refuses(self, distribution: object, message: str) -> None:
        with pytest.raises((InvalidValue, InvalidType), match=message):
            noise.from_distribution(distribution())  # type: ignore[operator]


@dataclass(frozen=True)
class Own:
    """A user's noise, with the faults that users make."""

    mean: float = 0.0
    variance: float = 1.0
    fault: str = ""

    def sample(self, shape, *, like, generator=None):
        if self.fault == "global stream":
            return torch.randn(shape, dtype=like.dtype)
        eps = self.mean + torch.randn(shape, dtype=like.dtype, generator=generator)
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
            (Own(mean=1.0), "must be centred, but 65536 draws have mean"),
            (Own(mean=-0.1), "must be centred"),
            (Own(variance=-1.0), "variance must be a finite number"),
            (Own(variance=math.nan), "variance must be a finite number"),
            (Own(variance="1"), "variance must be a finite number"),  # type: ignore[arg-type]
            (Own(fault="shape"), r"got \(65535,\)"),
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

    def test_a_rare_and_large_noise_is_not_refused(self) -> None:
        noise.validate(noise.from_distribution(Uniform(-1.0, 1.0)))
        noise.validate(noise.from_distribution(StudentT(2.5)))
