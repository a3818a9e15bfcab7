"""Ensembles: K samples of the noise, mixed in several ways."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from noisin._util import arguments
from noisin.data import Batch
from noisin.errors import InvalidType, InvalidValue
from noisin.models import SequenceModel
from noisin.models.base import State
from noisin.recurrent.injection import as_training, injected_modules, noise_on
from noisin.training import samples
from noisin.training.predictors.base import check_model, device_of, log_prob

# With fewer effective samples than this, a few large likelihoods dominate the marginal.
FEW_SAMPLES = 20


class Mixed(NamedTuple):
    """The state of a mixture: the state of the K samples, and their contributions so far.

    The samples of a column share its data but have independent noise. The variance of their
    first-order contributions to ``log p`` over all data gives the standard error, regardless of how
    long the noise of one step has an effect.
    """

    samples: State
    contributions: Tensor  # (K, N)
    masks: Any = None  # of Monte Carlo dropout, if they are held

    def stderr(self, count: int) -> float:
        """The standard error of the nats per target due to the noise."""
        K = len(self.contributions)
        if K == 1:
            return math.nan
        return math.sqrt(self.contributions.var(0).sum() / K) / count


@dataclass(frozen=True)
class Mixture:
    """Mixes K samples of the noise, with dropout off."""

    model: nn.Module
    K: int
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_model(self.model, self.temperature)
        arguments.whole("evaluate: K", self.K, what="a whole number of noise samples")

    def __call__(self, batch: Batch, state: State = None) -> tuple[Tensor, State]:
        """Score a batch."""
        with self._sampling():
            samples = None if state is None else state.samples
            log_p, contributions, samples = self._mix(batch, samples)
        if state is not None:
            contributions = state.contributions + contributions
        return log_p, Mixed(samples, contributions)

    def _mix(self, batch: Batch, state: State) -> tuple[Tensor, Tensor, State]:
        """``log p``, ``(T, N)``, what each sample contributes, ``(K, N)``, and the state."""
        raise NotImplementedError

    def _sampled(self, batch: Batch, state: State) -> tuple[Tensor, State]:
        """``log p`` under each sample, ``(K, T, N)``; zero where a target is not scored."""
        log_p, state = log_prob(self.model, batch, state, self.temperature, self.K)
        if batch.scored is not None:
            log_p = log_p.where(batch.scored.repeat(1, self.K).to(log_p.device), 0.0)
        return log_p.double().view(len(log_p), self.K, -1).transpose(0, 1), state

    @contextmanager
    def _sampling(self) -> Iterator[None]:
        with as_training(self.model, on=False), noise_on(self.model), torch.no_grad():
            if not any(module._noise_acts() for module in injected_modules(self.model)):
                raise InvalidValue(
                    "evaluate: expected a model with noise to draw K samples of, got one without "
                    "noise (dropout is off in evaluation). Use Clean(model), or add noise: "
                    "noisin.set_noise(model, noise)."
                )
            yield


@dataclass(frozen=True)
class Marginal(Mixture):
    """The joint marginal likelihood of ``length`` targets, estimated from K samples of the noise.

    Each sample has its own history and predicts all targets of a window:
    ``log (1/K) Σ_k Π_t p(x_t | z_t^(k))``. The score of step t is its conditional factor given the
    steps before. The larger ``length``, the more samples are needed; with too few the estimate is
    too low, and the standard error is nan if that is detected.
    """

    length: int = 35

    def _mix(self, batch: Batch, state: State) -> tuple[Tensor, Tensor, State]:
        log_p, state = self._sampled(batch, state)
        parts, contributions = [], torch.zeros_like(log_p[:, 0])
        for window in torch.split(log_p, self.length, dim=1):
            history = window.cumsum(1)
            joint = log_mean_exp(history)
            weights = self.K * history[:, -1].softmax(0)
            if self.K**2 / weights.square().sum(0).max() < FEW_SAMPLES:
                weights = weights * math.nan
            parts += [joint[:1], joint[1:] - joint[:-1]]
            contributions = contributions + weights
        return torch.cat(parts), contributions, state


@dataclass(frozen=True)
class Arithmetic(Mixture):
    """The ensemble that averages the *probabilities* of K samples of the noise, step by step."""

    def _mix(self, batch: Batch, state: State) -> tuple[Tensor, Tensor, State]:
        log_p, state = self._sampled(batch, state)
        weights = self.K * log_p.softmax(0)
        return log_mean_exp(log_p), weights.sum(1), state


@dataclass(frozen=True)
class Geometric(Mixture):
    """The ensemble that averages the *log* probabilities of K samples, step by step, normalised.

    That is the prediction from the mean of z. In strong mode it tends to the clean model.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.model, SequenceModel):
            raise InvalidType(
                f"Geometric: expected a SequenceModel, whose head reads z, got "
                f"{type(self.model).__name__}. Use Arithmetic."
            )
        if not hasattr(self.model.head, "V"):
            raise InvalidType(
                f"Geometric: the mean of z predicts the mean of the log probabilities with a "
                f"linear head only, got {type(self.model.head).__name__}. Use Arithmetic."
            )

    def _mix(self, batch: Batch, state: State) -> tuple[Tensor, Tensor, State]:
        model = self.model
        assert isinstance(model, SequenceModel)
        batch = batch.to(device_of(model))
        z, state = samples.encode(model, batch, state, self.K)
        z = z.view(len(z), self.K, -1, z.shape[-1]).transpose(0, 1)
        mean = z.mean(0).requires_grad_()
        with torch.enable_grad():
            nll = model.head_at(self.temperature).nll(mean, batch)[0].double()
            if batch.scored is not None:
                nll = nll.where(batch.scored, 0.0)
            (slope,) = torch.autograd.grad(nll.sum(), mean)
        return -nll.detach(), -(slope * (z - mean)).sum((1, 3)).double(), state


def log_mean_exp(log_p: Tensor) -> Tensor:
    """The logarithm of the mean over K samples."""
    return log_p.logsumexp(0) - math.log(len(log_p))
