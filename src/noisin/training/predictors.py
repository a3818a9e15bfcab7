r"""Predictors: how a trained model is used to score data. They compose.

A predictor takes a batch and a state to ``log p`` of each target, ``(T, N)``, and the next state.
:class:`Clean` is the model without noise; the others mix K samples of the noise.
:func:`evaluate` scores batches with one.

>>> import numpy as np
>>> from noisin import data, models
>>> model = models.LanguageModel(3, hidden_size=4)
>>> text = data.Windows(np.array([0, 1, 2, 0, 1, 2]), batch_size=1, length=70)
>>> evaluate(Clean(model), text.epoch(0)).count
5
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from noisin._util import arguments
from noisin.data import Batch
from noisin.errors import InvalidType, InvalidValue
from noisin.models import SequenceModel, Trainable
from noisin.models.base import State
from noisin.recurrent.injection import as_training, injected_modules, noise_on
from noisin.tasks.unit import Score
from noisin.training import samples

# With fewer effective samples than this, a few large likelihoods dominate the marginal.
FEW_SAMPLES = 20


class Predictor(Protocol):
    """Scores a batch: ``log p`` of each target, ``(T, N)``, and the state."""

    def __call__(self, batch: Batch, state: State = None) -> tuple[Tensor, State]:
        """Score a batch, starting from ``state``."""
        ...


def evaluate(
    predictor: Predictor, batches: Iterable[Batch], poll: Callable[[], None] = lambda: None
) -> Score:
    """The score of some batches: ``-log p`` per scored target.

    Args:
        predictor: scores the batches.
        batches: the data, such as ``task.batches("test")`` or ``data.Windows(...).epoch(0)``.
        poll: called before every batch; it can raise to stop the evaluation.
    """
    total, count, state = 0.0, 0, None
    for batch in batches:
        poll()
        log_p, state = predictor(batch, state if batch.carries else None)
        scored = log_p if batch.scored is None else log_p[batch.scored.to(log_p.device)]
        total += scored.double().sum().item()
        count += batch.count
    if not count:
        raise InvalidValue("evaluate: expected batches with scored targets, got none.")
    return Score(-total / count, count, state.stderr(count) if isinstance(state, Mixed) else None)


@dataclass(frozen=True)
class Clean:
    """The model with noise and dropout off, in train and eval mode; its mode is restored.

    ``temperature`` divides the natural parameters.
    """

    model: nn.Module
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _check(self.model, self.temperature)

    def __call__(self, batch: Batch, state: State = None) -> tuple[Tensor, State]:
        """Score a batch."""
        with as_training(self.model, on=False), torch.no_grad():
            return _log_prob(self.model, batch, state, self.temperature)


class Mixed(NamedTuple):
    """The state of a mixture: the state of the K samples, and their contributions so far.

    The samples of a column share its data but have independent noise. The variance of their
    first-order contributions to ``log p`` over all data gives the standard error, regardless of how
    long the noise of one step has an effect.
    """

    samples: State
    contributions: Tensor  # (K, N)

    def stderr(self, count: int) -> float:
        """The standard error of the nats per target due to the noise."""
        K = len(self.contributions)
        if K == 1:
            return math.nan
        return math.sqrt(self.contributions.var(0).sum() / K) / count


@dataclass(frozen=True)
class _Mixture:
    """Mixes K samples of the noise, with dropout off."""

    model: nn.Module
    K: int
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _check(self.model, self.temperature)
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
        log_p, state = _log_prob(self.model, batch, state, self.temperature, self.K)
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
class Marginal(_Mixture):
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
            joint = _log_mean_exp(history)
            weights = self.K * history[:, -1].softmax(0)
            if self.K**2 / weights.square().sum(0).max() < FEW_SAMPLES:
                weights = weights * math.nan
            parts += [joint[:1], joint[1:] - joint[:-1]]
            contributions = contributions + weights
        return torch.cat(parts), contributions, state


@dataclass(frozen=True)
class Arithmetic(_Mixture):
    """The ensemble that averages the *probabilities* of K samples of the noise, step by step."""

    def _mix(self, batch: Batch, state: State) -> tuple[Tensor, Tensor, State]:
        log_p, state = self._sampled(batch, state)
        weights = self.K * log_p.softmax(0)
        return _log_mean_exp(log_p), weights.sum(1), state


@dataclass(frozen=True)
class Geometric(_Mixture):
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
        batch = batch.to(_device(model))
        z, state = samples.encode(model, batch, state, self.K)
        z = z.view(len(z), self.K, -1, z.shape[-1]).transpose(0, 1)
        mean = z.mean(0).requires_grad_()
        with torch.enable_grad():
            nll = model.head_at(self.temperature).nll(mean, batch)[0].double()
            if batch.scored is not None:
                nll = nll.where(batch.scored, 0.0)
            (slope,) = torch.autograd.grad(nll.sum(), mean)
        return -nll.detach(), -(slope * (z - mean)).sum((1, 3)).double(), state


def _log_prob(
    model: nn.Module, batch: Batch, state: State, temperature: float, K: int = 1
) -> tuple[Tensor, State]:
    options = {} if temperature == 1 else {"temperature": temperature}
    return samples.log_prob(model, batch.to(_device(model)), state, K, **options)


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def _log_mean_exp(log_p: Tensor) -> Tensor:
    return log_p.logsumexp(0) - math.log(len(log_p))


def _check(model: object, temperature: float) -> None:
    if not isinstance(model, nn.Module) or not isinstance(model, Trainable):
        raise InvalidType(
            f"evaluate: expected a model with loss and log_prob, such as a LanguageModel, got "
            f"{type(model).__name__}."
        )
    arguments.finite(
        "evaluate: temperature",
        temperature,
        above=0,
        advice="Use 1 for the model's own probabilities.",
    )
    if temperature != 1 and not hasattr(model, "head_at"):
        raise InvalidType(
            f"evaluate: a temperature needs a SequenceModel, got {type(model).__name__}. Use 1."
        )
