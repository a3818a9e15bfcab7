"""Deliberate breaks of what the claims are about: laws, the injection, the recurrence, densities,
likelihoods and weights. None touches a figure that a claim reports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from noisin import likelihoods, noise, objective
from noisin.analysis import curves
from noisin.analysis.claims import dropout
from noisin.noise import ranges
from noisin.noise.family import Family
from noisin.objective import estimates
from noisin.recurrent import functional, scans
from noisin.recurrent.cell import CELLS
from noisin.recurrent.injection import Injection
from noisin.recurrent.layout import Layout
from noisin.recurrent.scanned import MinGRUCell
from noisin.recurrent.stack import NoisyStack
from noisin.regularizers import DropoutLSTMCell, Masks

Patch = pytest.MonkeyPatch
Break = Callable[[Patch], None]


def replaced(owner: Any, name: str, value: Any) -> Break:
    """Something else in place of a part."""
    return lambda patch: patch.setattr(owner, name, value)


def wrapped(owner: Any, name: str, change: Callable[..., Any]) -> Break:
    """A part, called as ``change(part, *args)``."""

    def apply(patch: Patch) -> None:
        part = getattr(owner, name)
        patch.setattr(owner, name, lambda *args, **kwargs: change(part, *args, **kwargs))

    return apply


def stepping(name: str, change: Callable[..., Any]) -> Break:
    """A transition function, changed wherever it is called."""

    def apply(patch: Patch) -> None:
        part = getattr(functional, name)
        wrapped(functional, name, change)(patch)
        for cell, spec in CELLS.items():
            if getattr(spec.step, "func", spec.step) is part:
                step = partial(change, spec.step)
                patch.setitem(CELLS, cell, replace(spec, step=step))

    return apply


# Laws


def law(family: type[Family], change: Callable[[Tensor], Tensor]) -> Break:
    """Draws of a family, changed."""
    return wrapped(family, "_draw", lambda draw, self, source: change(draw(self, source)))


def biased(family: type[Family]) -> Break:
    return law(family, lambda eps: eps + 0.1)


def wider(family: type[Family]) -> Break:
    return law(family, lambda eps: 1.2 * eps)


def silent(family: type[Family]) -> Break:
    return law(family, torch.zeros_like)


def another_gamma(patch: Patch) -> None:
    """Laplace noise whose gamma is half its standard deviation, in all that it says and does."""
    other = replace(
        ranges.spread("Laplace"),
        std=lambda gamma: 2 * gamma,
        variance=lambda gamma: 4 * gamma**2,
        gamma=lambda variance: variance**0.5 / 2,
    )
    patch.setitem(ranges.RANGES, "Laplace", {"gamma": other})
    law(noise.Laplace, lambda eps: 2 * eps)(patch)


def variance_is_std(patch: Patch) -> None:
    """Gaussian noise that states its standard deviation where its variance is asked for."""
    patch.setattr(noise.Gaussian, "variance", property(lambda self: self.gamma))


one_mask_for_all_units = law(noise.Bernoulli, lambda eps: eps[..., :1].expand_as(eps).clone())
one_mask_for_two_steps = law(
    noise.Bernoulli, lambda eps: eps[torch.arange(len(eps)) // 2] if eps.dim() > 2 else eps
)


def keeps_too_often(by: float) -> Break:
    """Bernoulli noise that keeps more than gamma of the units."""

    def draw(_: Any, self: noise.Bernoulli, source: Any) -> Tensor:
        return source.uniform().le(self.gamma + by).to(source.dtype) / self.gamma - 1

    return wrapped(noise.Bernoulli, "_draw", draw)


# The injection and the recurrence


def _off_centre(h: Tensor, eps: Tensor, mode: str) -> Tensor:
    return h + 0.25 + eps if mode == "additive" else h * (1.25 + eps)


def _scaled(h: Tensor, eps: Tensor, mode: str) -> Tensor:
    return h + 1.01 * eps if mode == "additive" else h * (1 + 1.01 * eps)


def _forgetful(transition: Any, eps: Any, mode: Any, *_: Any) -> Any:
    def step(t: int, x: Tensor, state: Any) -> Any:
        h, *rest = transition(x, state)
        return functional.inject(h, eps[t], mode), (h, *rest)

    return step


def _first_layer_off(emit: Any, self: Any, first: int, last: int, *rest: Any) -> Any:
    z, final = emit(self, first, last, *rest)
    return (1.25 * z if last == 0 else z), final


def _fed_back(configure: Any, self: Any, injection: Injection) -> None:
    configure(self, replace(injection, feedback=True))


off_centre = replaced(functional, "inject", _off_centre)
a_little_more = wrapped(
    functional, "inject", lambda inject, h, eps, mode: inject(h, eps, mode) + 1e-4
)
scaled_noise = replaced(functional, "inject", _scaled)
not_fed_back = replaced(functional, "noisy", _forgetful)
always_fed_back = wrapped(NoisyStack, "_configure", _fed_back)
first_layer_off = wrapped(NoisyStack, "_emit", _first_layer_off)
fresh_where_shared = wrapped(
    Layout, "hold", lambda _, self, x: torch.stack([x[torch.randperm(len(x))] for _ in self.sizes])
)
elman_off = stepping("elman", lambda f, gates, *rest, **named: f(1.5 * gates, *rest, **named))
lstm_off = stepping("lstm", lambda f, gates, *rest, **named: f(1.2 * gates, *rest, **named))
curved_affine = wrapped(MinGRUCell, "forward", lambda f, self, x, z=None: f(self, x, z).tanh())
scan_off = wrapped(scans, "noisy", lambda f, a, b, eps, *rest: f(a, b, eps + 1e-6, *rest))


# Dropout


def _masks_after_the_product(self: Any, x: Tensor) -> Any:
    cell = DropoutLSTMCell(self.input_size, self.hidden_size, p_x=1 - dropout.KEEP).double()
    cell.load_state_dict(self.state_dict())
    return cell(x)


def zaremba_after_the_product(patch: Patch) -> None:
    """Zaremba's dropout, as the paper's form has it."""
    patch.setattr(dropout, "F", SimpleNamespace(dropout=lambda x, _: x))
    patch.setattr(nn.LSTMCell, "forward", _masks_after_the_product)


def _shared_by_the_gates(sample: Any, self: Any, x: Tensor) -> Masks:
    self.shared = True
    return sample(self, x)


nothing_dropped = replaced(DropoutLSTMCell, "sample_masks", lambda _, x: Masks(None, None))
gates_share_masks = wrapped(DropoutLSTMCell, "sample_masks", _shared_by_the_gates)


# Likelihoods, densities, estimators and weights

wrong_hessian = replaced(
    likelihoods.Categorical, "hessian", lambda _, s: lambda v: s.softmax(-1) * v
)
skewed_poisson = wrapped(
    likelihoods.Poisson, "sample", lambda f, self, s, *args: f(self, s + 0.1, *args)
)


def wrong_A(family: type[likelihoods.Likelihood]) -> Break:  # noqa: N802
    """A log-normaliser that is not that of the density."""
    return wrapped(family, "A", lambda A, self, s: 2 * A(self, s))


def another_density(patch: Patch) -> None:
    """Gumbel noise with the density of the Gaussian of its variance: normalised, and wrong."""
    patch.setattr(
        noise.Gumbel, "log_prob", lambda self, eps: noise.Gaussian(self.gamma).log_prob(eps)
    )


shifted_density = wrapped(noise.Gumbel, "log_prob", lambda f, self, eps: f(self, eps - 0.5))


def _unscaled(density: Any, z: Tensor, f: Tensor, law: Any, mode: str) -> Tensor:
    jacobian = f.abs().log().sum(-1) if mode == "multiplicative" else 0.0
    return density(z, f, law, mode) + jacobian


density_without_its_jacobian = wrapped(objective, "transition_log_density", _unscaled)
mean_of_logs = replaced(estimates, "_log_mean_exp", lambda values: values.mean(0))
small_weights = wrapped(curves, "problem", lambda f: (f()[0] / 100, f()[1]))
