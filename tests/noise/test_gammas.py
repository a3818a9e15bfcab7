"""Where the noise comes from: uniform variates, and the Gamma and Beta variates made of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats as scipy_stats
from torch import Tensor
from torch._subclasses import FakeTensorMode

from noisin import noise
from noisin.noise import gammas
from noisin.noise.variates import Variates
from tests import stats
from tests.laws import CASES, PAPER, draw, law
from tests.pairwise import PRODUCTS, table

FLOAT32, FLOAT64 = torch.float32, torch.float64
DTYPES = [FLOAT32, FLOAT64]
# One for every way to draw: of a uniform, of a sign, of a few terms, by rejection, of two Gammas.
WAYS = [
    *(noise.Gaussian(1.0), noise.Bernoulli(0.5), noise.Gumbel(1.0)),
    *(noise.Laplace(1.0), noise.Logistic(1.0)),
    *(noise.Gamma(1.0), noise.Gamma(1.0, alpha=0.5), noise.Gamma(1.0, alpha=2.7)),
    *(noise.Beta(1.07), noise.Beta(0.7, alpha=0.6), noise.ChiSquare(1.2)),
]
MADE_OF_OTHERS = [n for n in CASES if isinstance(n, noise.Gamma | noise.Beta | noise.ChiSquare)]


def batched(sample: Callable[[], Tensor]) -> Tensor:
    """Draw under vmap, where values are unknown and nothing can be rejected."""
    return torch.func.vmap(lambda _: sample(), randomness="different")(torch.zeros(2))


def feed(monkeypatch: pytest.MonkeyPatch, k: Tensor, r: Tensor, share: float = 1.0) -> None:
    """Let torch draw the random bits k (int32 or int16) and the numbers r, each again and again.

    They are a ``share`` of what it draws: rejection would not end if all variates were rejected.
    """
    rand, random_ = torch.rand, Tensor.random_

    def fed(real: Tensor, given: Tensor) -> Tensor:
        n = real.numel()
        given = given.repeat(n // given.numel() + 1)[:n].view(real.shape)
        return torch.where(rand(real.shape) < share, given, real)

    def fed_random_(self: Tensor, *arguments: object, **options: object) -> Tensor:
        real = random_(self, *arguments, **options).view(k.dtype)
        return real.copy_(fed(real, k))

    def fed_rand(*arguments: object, **options: object) -> Tensor:
        real = rand(*arguments, **options)
        return fed(real, r.to(real.dtype))

    monkeypatch.setattr(torch, "rand", fed_rand)
    monkeypatch.setattr(Tensor, "random_", fed_random_)


class TestUniform:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    @pytest.mark.parametrize("plain", [True, False])
    def test_law(self, plain: bool, dtype: torch.dtype) -> None:
        source = Variates((100_000,), dtype, torch.device("cpu"), None)
        assert source.is_plain
        with torch.random.fork_rng():
            u = source.uniform() if plain else batched(source.uniform)
        s = source.signed() if plain else batched(source.signed)
        assert u.dtype == s.dtype == dtype
        assert u.min() > 0
        assert u.max() <= 1
        stats.assert_law(u.flatten().numpy(), scipy_stats.uniform(0, 1).cdf)
        stats.assert_law(s.flatten().numpy(), scipy_stats.uniform(-1, 2).cdf)

    def test_all_bits_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In float32 a uniform comes close to 0, where logarithms need it, and avoids it."""
        k = torch.tensor([0, -1, 1, 2**30, -(2**30), 2**31 - 1, -(2**31)], dtype=torch.int32)
        feed(monkeypatch, k, torch.zeros(1))
        source = Variates((7,), FLOAT32, torch.device("cpu"), None)
        least = 2.0**-32
        assert source.signed().tolist() == [least, -least, 3 * least, 0.5, -0.5, 1, -1]
        assert source.uniform().tolist() == [least, least, 3 * least, 0.5, 0.5, 1, 1]

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_the_ends_of_torchs_own(
        self, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Variates, "is_plain", False)
        cell = torch.finfo(dtype).eps / 2
        feed(monkeypatch, torch.zeros(1), torch.tensor([0, 0.5, 1 - cell], dtype=FLOAT64))
        source = Variates((3,), dtype, torch.device("cpu"), None)
        assert source.uniform().tolist() == [1, 0.5, cell]
        assert source.signed().tolist() == [cell - 1, cell, 1 - cell]

    @pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (3, 5)])
    def test_every_shape(self, shape: tuple[int, ...]) -> None:
        for n in WAYS:
            assert n.sample(shape, like=torch.empty(())).shape == shape


class TestIndicator:
    ALL = torch.arange(-(2**15), 2**15, dtype=torch.int16)

    @pytest.mark.parametrize("p", [1e-3, 0.25, 0.4, 0.7316, 1 - 2**-17, 1.0])
    def test_its_probability_is_exact(self, p: float, monkeypatch: pytest.MonkeyPatch) -> None:
        """Given every pattern of its bits once, and a grid of the number that rounds p."""
        source = Variates((2**16,), FLOAT32, torch.device("cpu"), None)
        steps = 1000
        kept = 0.0
        for i in range(steps):
            feed(monkeypatch, self.ALL, torch.tensor([(i + 0.5) / steps], dtype=FLOAT64))
            eta = source.indicator(p)
            kept += eta.sum().item()
            monkeypatch.undo()
            assert set(eta.unique().tolist()) <= {0, 1}
        assert kept / (steps * 2**16) == pytest.approx(p, abs=0.51 / steps / 2**16)

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_by_torchs_own(self, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Variates, "is_plain", False)
        feed(monkeypatch, self.ALL, GRID)
        eta = Variates((63,), dtype, torch.device("cpu"), None).indicator(0.4)
        assert torch.equal(eta.bool(), 1 - GRID <= 0.4)

    @pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (3, 5)])
    def test_every_shape(self, shape: tuple[int, ...]) -> None:
        assert Variates(shape, FLOAT32, torch.device("cpu"), None).indicator(0.5).shape == shape

    def test_it_depends_on_the_generator_alone(self) -> None:
        def drawn(seed: int) -> Tensor:
            generator = torch.Generator().manual_seed(seed)
            return Variates((99,), FLOAT32, torch.device("cpu"), generator).indicator(0.4)

        assert torch.equal(drawn(1), drawn(1))
        assert not torch.equal(drawn(1), drawn(2))


EDGES = {"near 0": ([0, -1], 0.0), "near 1": ([2**31 - 1, -(2**31)], 1.0)}


@pytest.mark.parametrize(
    ("n", "plain", "edge", "dtype"), table(CASES, [True, False], [*EDGES], DTYPES), ids=str
)
def test_finite_at_the_ends_of_the_uniform(
    n: noise.Family, plain: bool, edge: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A uniform is at its end once in 2²⁴ draws: no test waits for that, so it is forced."""
    k, r = EDGES[edge]
    if not plain:
        monkeypatch.setattr(Variates, "is_plain", False)
    r = torch.tensor([r * (1 - torch.finfo(dtype).eps / 2)], dtype=FLOAT64)
    feed(monkeypatch, torch.tensor(k, dtype=torch.int32), r, share=0.5)
    assert n.sample((100,), like=torch.empty((), dtype=dtype)).isfinite().all()


GRID = torch.arange(1, 64, dtype=FLOAT64) / 64
QUANTILES: list[tuple[noise.Family, Callable[..., np.ndarray]]] = [
    (noise.Gumbel(1.3), lambda law, u, s: law.isf(u)),
    (noise.Laplace(1.3), lambda law, u, s: np.copysign(law.isf(np.abs(s) / 2), s)),
    (noise.Logistic(1.3), lambda law, u, s: np.copysign(law.isf(np.abs(s) / 2), s)),
    (noise.Gamma(1.3, alpha=1.0), lambda law, u, s: law.isf(u)),
    (noise.ChiSquare(2.0), lambda law, u, s: law.isf(u)),
    (noise.Beta(0.6, alpha=1.0), lambda law, u, s: law.isf(u)),
    (noise.Beta(1.3, alpha=1.0), lambda law, u, s: law.isf(u)),
    (noise.Beta(1.0, alpha=0.6), lambda law, u, s: law.ppf(u)),
    (noise.Beta(1.0, alpha=1.3), lambda law, u, s: law.ppf(u)),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "quantile"), QUANTILES, ids=[str(n) for n, _ in QUANTILES])
def test_quantiles_of_known_uniforms(
    n: noise.Family,
    quantile: Callable[..., np.ndarray],
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fed known uniforms, a draw of one is scipy's quantile: no sample could show it so."""
    s = 2 * GRID - 1 + 1e-3
    feed(monkeypatch, (s * 2**31).to(torch.int32), (s + 1) / 2)
    eps = n.sample((63,), like=torch.empty((), dtype=dtype))
    u = s.abs() if dtype == FLOAT32 else (1 - s) / 2
    rtol = 1e-5 if dtype == FLOAT32 else 1e-12
    expected = quantile(law(n), u.numpy(), s.numpy())
    np.testing.assert_allclose(eps.numpy(), expected, rtol=rtol, atol=rtol)


def test_a_tail_reaches_22_scales_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, torch.zeros(1, dtype=torch.int32), torch.zeros(1))
    for n in (noise.Gumbel(1.0), noise.Laplace(1.0), noise.Logistic(1.0)):
        eps = n.sample((1,), like=torch.empty(())).item()
        assert law(n).sf(eps) == pytest.approx(2.0**-32, rel=1e-4, abs=2.0**-33)


@pytest.mark.long
@pytest.mark.parametrize("n", PAPER, ids=str)
def test_the_laws_of_the_paper_in_many_draws(n: noise.Family) -> None:
    """In float32, as training draws them."""
    eps = draw(n, 1_000_000, FLOAT32)
    if isinstance(n, noise.Bernoulli):
        stats.assert_mean(eps.astype(np.float64), 0.0, n.std)
    else:
        stats.assert_law(eps, law(n).cdf)


@pytest.mark.parametrize(
    "n",
    [
        *(noise.Gamma(1.0, alpha=1e10), noise.ChiSquare(1e10), noise.Beta(1e10)),
        *(noise.Beta(1e10, alpha=1e10), noise.Beta(1e-9, alpha=1e-9)),
    ],
    ids=str,
)
def test_the_law_of_extreme_shapes(n: noise.Family) -> None:
    """The variates are close to their mean, or to 0 and 1."""
    draws = 200_000 if PRODUCTS else 50_000  # scipy takes long for the law of such a Beta
    stats.assert_law(draw(n, draws, FLOAT32), law(n).cdf)


@pytest.mark.parametrize("n", MADE_OF_OTHERS, ids=str)
def test_the_law_where_nothing_can_be_rejected(n: noise.Family) -> None:
    """The fast and the general way have one law: scipy's."""
    eps = batched(lambda: n.sample((100_000,), like=torch.empty(())))
    stats.assert_law(eps.flatten().numpy(), law(n).cdf)


@pytest.mark.parametrize("n", WAYS, ids=str)
def test_neighbours_are_uncorrelated(n: noise.Family) -> None:
    """Two float32 draws share one 64-bit word, and the rejected are drawn apart."""
    eps = draw(n, 400_001, FLOAT32).astype(np.float64)
    stats.assert_mean(eps[1:] * eps[:-1], 0.0, n.variance)


@pytest.mark.parametrize(
    ("n", "dtype"),
    [
        *((n, FLOAT32) for n in PAPER),
        *((noise.Bernoulli(g), FLOAT64) for g in (1e-9, 1 - 1e-9)),
        *((noise.Beta(g), FLOAT64) for g in (1e-9, 1e9)),
        *((noise.Gamma(1.0, alpha=a), FLOAT64) for a in (1e-3, 100.0)),
        (noise.Beta(0.5, alpha=1e-3), FLOAT64),
    ],
    ids=str,
)
def test_float32_is_left_where_it_is_too_coarse(
    n: noise.Family, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32 a uniform below 1e-9 is zero: it would be kept sixty times too often."""
    drawn: set[torch.dtype] = set()

    def spied(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def spy(self: Variates, *p: float) -> Tensor:
            drawn.add(self.dtype)
            return method(self, *p)

        return spy

    for name in "uniform", "indicator":
        monkeypatch.setattr(Variates, name, spied(getattr(Variates, name)))
    assert n.sample((10,), like=torch.empty(())).dtype == FLOAT32
    assert drawn == {dtype}


def test_a_beta_near_one_keeps_its_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tiny gamma, eta is within 1e-9 of one: what counts is 1 - eta."""
    n = noise.Beta(1e-9)
    u = iter([torch.tensor([1 - 2.5e-8], dtype=FLOAT64), torch.tensor([0.5], dtype=FLOAT64)])
    monkeypatch.setattr(Variates, "uniform", lambda _: next(u))
    eps = n.sample((1,), like=torch.empty((), dtype=FLOAT64))
    rest = math.exp(math.log1p(-2.5e-8) / n.gamma) * 0.5 ** (1 / (1 + n.gamma))
    exact = n._scale * (n.gamma / (n.alpha + n.gamma) - rest)
    assert eps.item() == pytest.approx(exact, rel=1e-7)  # log(1 - 2.5e-8) has as many digits


def test_most_gamma_variates_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejection is fast because it is rare, from shape 1 on."""
    sizes: list[int] = []
    normal = Variates.normal

    def spy(self: Variates) -> Tensor:
        sizes.append(math.prod(self.shape))
        return normal(self)

    monkeypatch.setattr(Variates, "normal", spy)
    gammas.log_gamma(Variates((100_000,), FLOAT32, torch.device("cpu"), None), 1.0)
    assert sizes[0] == 100_000
    assert sum(sizes[1:]) < 6_000


@pytest.mark.parametrize("n", WAYS, ids=str)
class TestWithoutValues:
    """Where Python cannot look at values, noise is drawn all the same."""

    def test_vmap(self, n: noise.Family) -> None:
        for randomness, same in (("same", True), ("different", False)):
            eps = torch.func.vmap(
                lambda x: n.sample((100,), like=x), randomness=randomness, out_dims=0
            )(torch.zeros(2))
            assert torch.equal(eps[0], eps[1]) == same
        with pytest.raises(RuntimeError, match="randomness"):
            torch.func.vmap(lambda x: n.sample((100,), like=x))(torch.zeros(2))

    def test_gradients_of_functions_draw_the_same_numbers(self, n: noise.Family) -> None:
        def scaled(x: Tensor) -> Tensor:
            torch.manual_seed(3)
            return x * n.sample((100,), like=x)

        eps = scaled(torch.ones(()))
        assert torch.equal(torch.func.jacrev(scaled)(torch.ones(())), eps)

    def test_without_storage(self, n: noise.Family) -> None:
        assert n.sample((3, 5), like=torch.empty((), device="meta")).is_meta
        with FakeTensorMode():
            assert n.sample((3, 5), like=torch.empty(())).shape == (3, 5)

    def test_compiled(self, n: noise.Family) -> None:
        torch._dynamo.reset()
        compiled = torch.compile(
            lambda x: x + n.sample((1000,), like=x), backend="aot_eager", fullgraph=True
        )
        eps = compiled(torch.zeros(()))
        assert not torch.equal(compiled(torch.zeros(())), eps)
        stats.assert_mean(eps.double().numpy(), 0.0, n.std)
