"""The calls of noises, likelihoods and the linear prediction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributions

import noisin
from noisin import likelihoods, noise, testing
from noisin.likelihoods import LIKELIHOODS, Likelihood
from noisin.noise.others import StudentT, TwoPoint
from tests.calls.call import Call
from tests.calls.modules import law


def like() -> Tensor:
    return torch.zeros(2, 3)


def _drawn(noise: Any) -> Tensor:
    eps: Tensor = noise.sample((3,), like=torch.zeros(()))
    return eps


def _families() -> list[Call]:
    calls = []
    families: list[type[noise.Family]] = [*noise.FAMILIES.values(), TwoPoint, StudentT]
    for family in families:
        name = f"noise.{family.__name__}"
        alpha: dict[str, Any] = {"alpha": lambda: 2.0} if name[6:] in ("Gamma", "Beta") else {}
        member = family.from_variance(0.5)
        calls += [
            Call(
                name,
                lambda family=family, **a: _drawn(family(**a)),
                {"gamma": lambda: 0.5, **alpha},
            ),
            Call(
                f"{name}.from_variance",
                lambda family=family, **a: _drawn(family.from_variance(**a)),
                {"variance": lambda: 0.5, **alpha},
            ),
            Call(
                f"{name}.sample",
                member.sample,
                {"shape": lambda: (2, 3), "like": like, "generator": torch.Generator},
            ),
        ]
        if family not in (noise.Bernoulli, TwoPoint):
            calls.append(Call(f"{name}.log_prob", member.log_prob, {"eps": like}))
    return calls


def _noises() -> list[Call]:
    uniform = noise.from_distribution(distributions.Uniform(0.0, 1.0))
    return [
        *_families(),
        Call(
            "from_distribution",
            lambda distribution: _drawn(noise.from_distribution(distribution)),
            {"distribution": lambda: distributions.Uniform(0.0, 1.0)},
        ),
        Call(
            "from_distribution.sample",
            uniform.sample,
            {"shape": lambda: (2, 3), "like": like, "generator": torch.Generator},
        ),
        Call("noise.validate", noise.validate, {"noise": law}),
        Call(
            "noise.Biased",
            lambda **a: _drawn(noise.Biased(**a)),
            {"noise": law, "mean": lambda: 0.8, "rescaled": lambda: False},
        ),
        Call(
            "noise.Biased.sample",
            noise.Biased(noise.Gaussian(0.5), 0.8).sample,
            {"shape": lambda: (2, 3), "like": like, "generator": torch.Generator},
        ),
    ]


class Spin(Likelihood):
    """A likelihood of one's own, ``x = ±1``, with what it inherits."""

    def A(self, s: Tensor) -> Tensor:  # noqa: N802
        return torch.logaddexp(s, -s)

    def T(self, x: Tensor, like: Tensor) -> Tensor:  # noqa: N802
        return x.to(like.dtype)

    def mean(self, s: Tensor) -> Tensor:
        return s.tanh()

    def sample(self, s: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return 2 * torch.bernoulli(torch.sigmoid(2 * s), generator=generator) - 1


def _s() -> Tensor:
    return torch.linspace(-1, 1, 6).reshape(2, 3)


def _likelihoods() -> list[Call]:
    calls = []
    for kind, make in LIKELIHOODS.items():
        lik, name = make(), f"likelihoods.{make.__name__}"
        x = _classes if kind == "categorical" else like
        calls += [
            Call(f"{name}.A", lik.A, {"s": _s}),
            Call(f"{name}.T", lik.T, {"x": x, "like": _s}),
            Call(f"{name}.mean", lik.mean, {"s": _s}),
            Call(f"{name}.log_nu", lik.log_nu, {"x": x}),
            Call(f"{name}.nll", lik.nll, {"s": _s, "x": x}),
            Call(f"{name}.sample", lik.sample, {"s": _s, "generator": torch.Generator}),
            Call(f"{name}.hessian", _hessian(lik), {"s": _s, "v": _s}),
        ]
    own = Spin()
    calls += [
        Call("Spin.nll", own.nll, {"s": _s, "x": lambda: torch.ones(2, 3)}),
        Call("Spin.hessian", _hessian(own), {"s": _s, "v": _s}),
        Call("Spin.log_nu", own.log_nu, {"x": _s}),
        Call(
            "likelihoods.Gaussian",
            lambda variance: likelihoods.Gaussian(variance).nll(_s(), _s()),
            {"variance": lambda: 1.0},
        ),
    ]
    return calls


def _classes() -> Tensor:
    return torch.tensor([0, 2])


def _hessian(lik: Likelihood) -> Callable[..., Tensor]:
    return lambda s, v: lik.hessian(s)(v)


def _contracts() -> list[Call]:
    def noise_contract(noise: Any) -> None:
        contract = type("Test", (testing.NoiseContract,), {"noise": lambda _: noise})()
        contract.num_draws = 1000
        contract.test_draws_have_the_shape_and_dtype_asked_for_and_are_finite()

    def likelihood_contract(likelihood: Any, s: Any, x: Any, weights: Any) -> None:
        hooks = {
            "likelihood": lambda _: likelihood,
            "natural_parameters": lambda _: s,
            "support": lambda _: (x, weights),
        }
        contract = type("Test", (testing.LikelihoodContract,), hooks)()
        contract.test_hessian_is_the_second_derivative_of_A()

    return [
        Call("NoiseContract", noise_contract, {"noise": law}),
        Call(
            "LikelihoodContract",
            likelihood_contract,
            {
                "likelihood": likelihoods.Bernoulli,
                "s": lambda: _s().double(),
                "x": lambda: torch.tensor([0, 1]),
                "weights": lambda: torch.ones(2),
            },
        ),
    ]


CALLS = [
    *_noises(),
    *_likelihoods(),
    *_contracts(),
    Call(
        "linear_nll",
        noisin.linear_nll,
        {
            "z": lambda: torch.ones(5, 2, 4),
            "V": lambda: torch.ones(4, 3),
            "x": lambda: torch.zeros(5, 2, dtype=torch.int64),
            "bias": lambda: torch.ones(3),
            "chunk_size": lambda: 2,
            "reduction": lambda: "sum",
        },
    ),
]
