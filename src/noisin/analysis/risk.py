"""The risk with noise, the risk without noise, and their difference."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from noisin import objective
from noisin._util import arguments, checks
from noisin.analysis.regularizer import bregman
from noisin.errors import InvalidValue
from noisin.likelihoods import Likelihood
from noisin.noise import Noise
from noisin.objective import Window
from noisin.recurrent.injection import as_training, injected_modules, noise_on


@dataclass(frozen=True)
class Measured:
    """A Monte Carlo estimate and its standard error."""

    value: Tensor
    stderr: Tensor

    @classmethod
    def of(cls, samples: Tensor) -> Measured:
        """The mean of samples; the standard error of a single sample is nan."""
        checks.require_real("Measured", samples=samples)
        if samples.dim() != 1 or len(samples) == 0:
            raise InvalidValue(
                f"Measured: expected samples of shape (K,) with K > 0, got {tuple(samples.shape)}."
            )
        if len(samples) == 1:
            return cls(samples[0], samples.new_tensor(math.nan))
        return cls(samples.mean(), samples.std() / math.sqrt(len(samples)))


@dataclass(frozen=True)
class Risk:
    """``R = R(det) + difference``, summed over rows and steps, in nats.

    R(det) is exact, so R and the difference have the same standard error.
    """

    R: Tensor
    R_det: Tensor
    stderr: Tensor

    @property
    def difference(self) -> Tensor:
        """What noise adds to the risk: the regularizer, if the noise is strongly unbiased."""
        return self.R - self.R_det


def risk_decomposition(
    model: nn.Module,
    batch: Window,
    K: int = 64,
    likelihood: Likelihood | None = None,
    *,
    batch_first: bool | None = None,
) -> Risk:
    """R, R(det) and their difference, from K noise samples.

    ``batch_first`` is as in :func:`noisin.objective.estimate`.

    >>> import noisin
    >>> from noisin import likelihoods, noise
    >>> rnn = noisin.RNN(1, 2, noise=noise.Gaussian(0.5), feedback=False)
    >>> batch = Window(torch.ones(5, 4, 1), torch.zeros(5, 4, 2))
    >>> risk = risk_decomposition(rnn, batch, K=500, likelihood=likelihoods.Gaussian())
    >>> bool(risk.difference > 0)
    True
    """
    checks.require_module("risk_decomposition", model)
    with torch.no_grad():
        noisy = objective.estimate(model, batch, K, likelihood, batch_first=batch_first)
        with as_training(model, False):
            s, _ = model(batch.x, batch.state)
        likelihood = objective.likelihood_of(model, likelihood)
        return Risk(-noisy.bound, likelihood.nll(s=s, x=batch.target).sum(), noisy.bound_stderr)


def expected_kl(
    model: nn.Module,
    x: Tensor,
    K: int = 64,
    state: Any = None,
    likelihood: Likelihood | None = None,
    *,
    batch_first: bool | None = None,
) -> Measured:
    """``Σ E KL(p_h || p_z)``: how far predictions with noise are from those without.

    On targets that the clean model itself draws, it is what noise adds to the risk, for any noise,
    biased or not, and for dropout too: the noisy model is ``model`` as it is with the noise on, and
    the clean one is that in eval() with the noise off. In an exponential family it is the Bregman
    divergence ``A(s_z) - A(s_h) - (s_z - s_h)·∇A(s_h)``. ``batch_first`` is as in
    :func:`noisin.objective.estimate`.
    """
    checks.require_module("expected_kl", model)
    likelihood = objective.likelihood_of(model, likelihood)
    with torch.no_grad():
        samples = objective.predict(model, x, K, state, likelihood, batch_first=batch_first).s
        with as_training(model, False):
            s_h, _ = model(x, state)
    gap = bregman(likelihood, s_h)
    return Measured.of(torch.stack([gap(s).sum() for s in samples]))


def fisher_penalty(
    model: nn.Module,
    x: Tensor,
    draws: int = 64,
    state: Any = None,
    likelihood: Likelihood | None = None,
    generator: Generator | None = None,
) -> Measured:
    r"""The Fisher-score estimate of what small noise adds to the risk, fed back or not.

    .. math:: \tfrac12 \sum v\, E\|\partial \log p(\tilde x) / \partial \epsilon\|^2

    at ``eps = 0``, with x̃ drawn from the clean model's own predictions. All noise of the model is
    differentiated at once, in every layer and at every step: one backward pass per draw of x̃. It is
    the second-order term of :func:`expected_kl`.
    """
    checks.require_module("fisher_penalty", model)
    likelihood = objective.likelihood_of(model, likelihood)
    checks.require_model("fisher_penalty", model)
    checks.require_tensors("fisher_penalty", x=x)
    arguments.whole("fisher_penalty: draws", draws)
    with _noise_at_zero(model) as probes, torch.enable_grad():
        s, _ = checks.model_output("fisher_penalty", model(x, state))
    if not probes:
        raise InvalidValue(
            f"fisher_penalty: {type(model).__name__} drew no noise. Set the noise of its modules: "
            f"noisin.set_noise(model, noise)."
        )
    values = []
    for _ in range(draws):
        with torch.enable_grad():
            draw = likelihood.sample(s.detach(), generator=generator)
            nll = likelihood.nll(s=s, x=draw).sum()
        scores = torch.autograd.grad(
            nll, [eps for eps, _ in probes], retain_graph=True, materialize_grads=True
        )
        pairs = zip(scores, probes, strict=True)
        values.append(0.5 * sum(v * g.square().sum() for g, (_, v) in pairs))
    return Measured.of(torch.stack([torch.as_tensor(value) for value in values]))


@dataclass(frozen=True)
class _Zero:
    """A replacement for a noise: returns zeros that require gradients, and keeps them."""

    variance: float
    drawn: list[tuple[Tensor, float]]

    def sample(self, shape: Any, *, like: Tensor, generator: Generator | None = None) -> Tensor:  # noqa: ARG002
        zeros = torch.zeros(tuple(shape), dtype=like.dtype, device=like.device, requires_grad=True)
        self.drawn.append((zeros, self.variance))
        return zeros


@contextmanager
def _noise_at_zero(model: nn.Module) -> Iterator[list[tuple[Tensor, float]]]:
    drawn: list[tuple[Tensor, float]] = []

    def stand_in(law: Noise | None) -> Noise | None:
        return None if law is None else _Zero(law.variance, drawn)

    modules = injected_modules(model)
    before = [module.injection for module in modules]
    try:
        for module, injection in zip(modules, before, strict=True):
            law = injection.noise
            zeros = tuple(map(stand_in, law)) if isinstance(law, tuple) else stand_in(law)
            module.injection = injection.with_unchecked_noise(zeros)
        with as_training(model, False), noise_on(model):
            yield drawn
    finally:
        for module, injection in zip(modules, before, strict=True):
            module.injection = injection
