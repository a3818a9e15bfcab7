"""Contracts: test classes to inherit from, for your own noises and likelihoods.

A contract is a pytest class without the object to test. Override its hooks to provide it, in a
class whose name begins with Test:

>>> from noisin import likelihoods, noise
>>> class TestGumbel(NoiseContract):
...     def noise(self):
...         return noise.Gumbel(0.5)
>>> TestGumbel().test_mean_is_zero()
>>> class TestPoisson(LikelihoodContract):
...     def likelihood(self):
...         return likelihoods.Poisson()
...     def support(self):
...         return torch.arange(100), torch.ones(100)
>>> TestPoisson().test_the_density_is_complete()

For a model that was converted, :func:`check_noise_reaches` checks that its noise does something.

The statistical tests have fixed seeds. Over the choice of the seed, each of them fails for a
correct implementation with probability ``FALSE_ALARM_RATE``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor, nn
from torch.testing import assert_close

from noisin._util import checks
from noisin.errors import InvalidType, InvalidValue, LostNoise
from noisin.likelihoods import Likelihood
from noisin.likelihoods.base import require_likelihood
from noisin.noise import Noise
from noisin.noise.base import require_noise
from noisin.recurrent import reach
from noisin.recurrent.injection import Injected

FALSE_ALARM_RATE = 1e-8


def check_noise_reaches(
    model: nn.Module, batch: Any, *, call: Callable[[Any, Any], Any] | None = None
) -> None:
    """Assert that the noise of each noise-injected module changes what ``model`` returns.

    Each is switched on alone and compared with the model without noise, at one seed, in the mode
    that the model is in. Everything else that is random is the same in both. Noise does not reach
    the output, for instance, where ``feedback=False`` and the model reads the state ``h_n``, which
    is then clean.

    Args:
        model: any module, after :func:`noisin.convert`.
        batch: what the model is called with: ``model(*batch)`` for a tuple or list,
            ``model(**batch)`` for a mapping, else ``model(batch)``.
        call: ``call(model, batch)``, for a model that is called in another way. It returns tensors,
            alone or in tuples, lists and dicts.

    >>> import noisin
    >>> from noisin import noise
    >>> model = torch.nn.ModuleList([torch.nn.LSTM(2, 3), torch.nn.GRU(2, 3)])
    >>> model = noisin.convert(model, noise.Gaussian(0.5), feedback=False)
    >>> check_noise_reaches(model, torch.ones(5, 1, 2), call=lambda m, x: (m[0](x)[0], m[1](x)[1]))
    Traceback (most recent call last):
    noisin.errors.LostNoise: the noise of '1' (GRU) does not change what ModuleList returns
    """
    checks.require_module("check_noise_reaches", model)
    noisy = {n: m for n, m in model.named_modules() if isinstance(m, Injected)}
    without = [name for name, module in noisy.items() if module.noise is None]
    if not noisy or without:
        what = f"{without[0]!r} has none" if without else f"{type(model).__name__} contains none"
        raise InvalidValue(
            f"check_noise_reaches: expected modules with noise, and {what}. Convert the model "
            f"first: noisin.convert(model, noise=...)."
        )
    function = callable(call) and not isinstance(call, type) and checks.takes(call, 2)
    if call is not None and not function:
        raise InvalidType(
            f"check_noise_reaches: call must be a function (model, batch) -> tensors, got "
            f"{type(call).__name__}."
        )
    run = partial(call, model, batch) if call is not None else _called(model, batch)
    clean = reach.outputs(model, run, ())
    if not clean:
        raise InvalidType(
            f"check_noise_reaches: found no tensors in what {type(model).__name__} returns. Pass "
            f"call=lambda model, batch: ... that returns some."
        )
    lost = [
        f"{name!r} ({type(module).__name__})"
        for name, module in noisy.items()
        if not reach.moved(clean, reach.outputs(model, run, (module,)))
    ]
    if lost:
        raise LostNoise(
            f"the noise of {', '.join(lost)} does not change what {type(model).__name__} returns"
        )


def _called(model: nn.Module, batch: Any) -> Callable[[], Any]:
    if isinstance(batch, Mapping):
        return partial(model, **batch)
    return partial(model, *batch) if type(batch) in (tuple, list) else partial(model, batch)


class NoiseContract:
    """What injection requires of a noise: zero mean, the stated variance, reproducible draws."""

    seed = 1111
    num_draws = 200_000
    dtypes = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

    def noise(self) -> Noise:
        """The noise to test."""
        raise NotImplementedError("Override noise() to return the noise to test.")

    def test_mean_is_zero(self) -> None:
        """``E[eps] = 0``: without it the noise-injected RNN is biased."""
        std = torch.tensor(self._noise().variance, dtype=torch.float64).sqrt()
        _assert_mean(self._draws(), torch.zeros(2, dtype=torch.float64), std, "mean of eps")

    def test_variance_is_as_stated(self) -> None:
        """``E[eps²] = variance``, which sets the strength of the regularizer."""
        squares = self._draws().square()
        stated = torch.tensor(self._noise().variance, dtype=torch.float64).expand(2)
        _assert_mean(squares, stated, squares.std(0), "mean of eps²")

    def test_entries_are_independent(self) -> None:
        """Neighbours along each dimension are uncorrelated."""
        eps, variance = self._draws(), self._noise().variance
        for a, b in ((eps[1:], eps[:-1]), (eps[:, 1:], eps[:, :-1])):
            product = (a * b).mean(1)
            std = torch.tensor(variance / math.sqrt(a.shape[1]), dtype=torch.float64)
            _assert_mean(product, torch.zeros((), dtype=torch.float64), std, "product of entries")

    def test_draws_have_the_shape_and_dtype_asked_for_and_are_finite(self) -> None:
        """In every floating-point dtype, and for an empty batch."""
        for dtype in self.dtypes:
            for shape in ((3, 4, 5), (2, 0, 5)):
                like = torch.empty((), dtype=dtype)
                eps = self._noise().sample(shape, like=like, generator=self._generator())
                assert (tuple(eps.shape), eps.dtype) == (shape, dtype)
                assert eps.isfinite().all()

    def test_draws_are_reproducible(self) -> None:
        """They depend on the given generator only, and do not advance the global one."""
        before = torch.get_rng_state()
        assert torch.equal(self._draws(), self._draws()), "the same generator gave other draws"
        assert torch.equal(before, torch.get_rng_state()), "sample used the global generator"

    def _noise(self) -> Noise:
        return require_noise(self.noise())

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def _draws(self) -> Tensor:
        like = torch.empty((), dtype=torch.float64)
        shape = (self.num_draws // 2, 2)
        return self._noise().sample(shape, like=like, generator=self._generator())


class LikelihoodContract:
    """What the theory requires of a likelihood ``p(x | s) = nu(x) exp(s·T(x) - A(s))``.

    The exact tests sum over ``support``, in float64; the draws of ``sample`` are tested against it.
    """

    seed = 1111
    num_draws = 50_000

    def likelihood(self) -> Likelihood:
        """The likelihood to test."""
        raise NotImplementedError("Override likelihood() to return the likelihood to test.")

    def natural_parameters(self) -> Tensor:
        """Values of s to test at, float64 of any shape. The outputs come last."""
        return torch.randn(5, 4, dtype=torch.float64, generator=self._generator())

    def support(self) -> tuple[Tensor, Tensor]:
        """Values ``(P, ...)`` of one observation and a weight ``(P,)`` for each.

        Weights are one for a discrete x. For a continuous x the values form a grid, and the weights
        are its spacing. The probability of all other values must be negligible at
        ``natural_parameters``.
        """
        raise NotImplementedError("Override support() to return values of x and their weights.")

    def as_mean(self, x: Tensor, s: Tensor) -> Tensor:
        """x in the form whose expectation is ``mean(s)``: x itself, or T(x) if shapes differ."""
        return x.to(s.dtype) if x.shape == s.shape else self._likelihood().T(x, like=s)

    # The density

    def test_the_density_is_complete(self) -> None:
        """It sums, or integrates, to one."""
        _, _, p = self._table()
        assert_close(p.sum(0), torch.ones_like(p[0]))

    def test_nll_is_that_of_the_exponential_family(self) -> None:
        """``nll = A(s) - s·T(x) - log nu(x)``, with the gradient ``∇A(s) - T(x)``."""
        lik, (s, x, _) = self._likelihood(), self._table()
        s.requires_grad_()
        T = lik.T(x, like=s)
        product = (s * T).sum(-1) if lik.event_dim else s * T
        nll = lik.nll(s=s, x=x)
        assert_close(nll, lik.A(s) - product - lik.log_nu(x).to(s.dtype))
        assert_close(_gradient(nll, s), _gradient(lik.A(s), s) - T)

    # Its moments

    def test_gradient_of_A_is_the_mean_of_T(self) -> None:  # noqa: N802
        """``∇A(s) = E[T(x)]``."""
        lik, (s, x, p) = self._likelihood(), self._table()
        expected = self._expectation(lik.T(x, like=s), p)
        s = self._parameters().requires_grad_()
        assert_close(_gradient(lik.A(s), s), expected)

    def test_hessian_of_A_is_the_variance_of_T(self) -> None:  # noqa: N802
        """``∇²A(s) v = E[T̃ T̃·v]`` with ``T̃ = T(x) - E[T(x)]``."""
        lik, (s, x, p) = self._likelihood(), self._table()
        T = lik.T(x, like=s)
        centred = T - self._expectation(T, p)
        v = self._direction(0)
        product = (centred * v).sum(-1, keepdim=True) if lik.event_dim else centred * v
        assert_close(lik.hessian(self._parameters())(v), self._expectation(centred * product, p))

    def test_hessian_is_the_second_derivative_of_A(self) -> None:  # noqa: N802
        """By differentiating A twice."""
        lik, v = self._likelihood(), self._direction(0)
        s = self._parameters().requires_grad_()
        first = _gradient(lik.A(s), s, create_graph=True)
        assert_close(lik.hessian(s)(v), _gradient(first * v, s))

    def test_hessian_is_symmetric_and_positive(self) -> None:
        """``uᵀHv = vᵀHu`` and ``vᵀHv ≥ 0``."""
        H = self._likelihood().hessian(self._parameters())
        u, v = self._direction(0), self._direction(1)
        assert_close((u * H(v)).sum(), (v * H(u)).sum())
        form = (v * H(v)).sum(-1)
        assert (form >= -1e-12).all(), f"vᵀHv must not be negative, got {form.min():.3g}"

    def test_mean_is_the_mean_of_x(self) -> None:
        """``mean(s) = E[x]``."""
        s, x, p = self._table()
        expected = self._expectation(self.as_mean(x, s), p)
        assert_close(self._likelihood().mean(self._parameters()), expected)

    # Its draws

    def test_draws_have_the_mean_and_the_variance(self) -> None:
        """The moments of ``sample`` are those of the density, up to chance."""
        s, x, p = self._table()
        values = self.as_mean(x, s)
        mean = self._expectation(values, p)
        s = self._parameters().expand(self.num_draws, *mean.shape)
        draws = self.as_mean(self._likelihood().sample(s, generator=self._generator()), s)
        for power in (1, 2):
            moments = (values - mean) ** power
            expected = self._expectation(moments, p)
            std = self._expectation((moments - expected) ** 2, p).sqrt()
            _assert_mean((draws - mean) ** power, expected, std, f"central moment {power} of x")

    def test_draws_are_reproducible(self) -> None:
        """They depend on the given generator only, and do not advance the global one."""
        s, before = self._parameters(), torch.get_rng_state()
        first, second = (self._likelihood().sample(s, generator=self._generator()) for _ in "ab")
        assert torch.equal(first, second), "the same generator state gave other draws"
        assert torch.equal(before, torch.get_rng_state()), "sample used the global generator"

    # Helpers

    def _likelihood(self) -> Likelihood:
        likelihood = self.likelihood()
        require_likelihood("LikelihoodContract", likelihood)
        return likelihood

    def _parameters(self) -> Tensor:
        s = self.natural_parameters()
        checks.require_real("LikelihoodContract: natural_parameters()", s=s)
        return s

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def _direction(self, number: int) -> Tensor:
        shape = (2, *self._parameters().shape)
        return torch.randn(shape, dtype=torch.float64, generator=self._generator())[number]

    def _table(self) -> tuple[Tensor, Tensor, Tensor]:
        """Every x of the support at every s, and its weighted density: s, x, p."""
        lik, s = self._likelihood(), self._parameters()
        x, weights = self.support()
        batch = s.shape[: s.dim() - lik.event_dim]
        x = x.reshape(len(x), *(1 for _ in batch), *x.shape[1:]).expand(-1, *batch, *x.shape[1:])
        if x.is_floating_point() or not lik.event_dim:  # class numbers stay integers
            x = x.to(s.dtype)
        s = s.expand(len(x), *s.shape).clone()
        p = lik.nll(s=s, x=x).neg().exp()
        return s, x, weights.to(s.dtype).reshape(-1, *(1 for _ in batch)) * p

    def _expectation(self, values: Tensor, p: Tensor) -> Tensor:
        return (values * (p.unsqueeze(-1) if self._likelihood().event_dim else p)).sum(0)


def _gradient(y: Tensor, s: Tensor, create_graph: bool = False) -> Tensor:
    return torch.autograd.grad(y.sum(), s, create_graph=create_graph)[0]


def _assert_mean(draws: Tensor, expected: Tensor, std: Tensor, what: str) -> None:
    """All means over the first dimension are as expected, at the level ``FALSE_ALARM_RATE``."""
    sigmas = NormalDist().inv_cdf(1 - FALSE_ALARM_RATE / (2 * expected.numel()))
    error = (draws.mean(0) - expected).abs()
    allowed = sigmas * std / math.sqrt(len(draws)) + 1e-12
    worst = (error / allowed).max()
    assert worst < 1, f"{what}: off by {worst * sigmas:.1f} standard errors ({sigmas:.1f} allowed)"
