r"""Perplexity: exact, of the clean model; and estimates that mix K samples of the noise.

A text is read in columns, the state carried from the first row to the last, and every target is
scored once. A score divides by the number of targets that it scored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from noisin._util import arguments
from noisin.data import Windows
from noisin.errors import InvalidType, InvalidValue
from noisin.likelihoods.linear import linear_nll
from noisin.models import LanguageModel
from noisin.recurrent.injection import as_training, injected_modules, noise_on

# Fewer effective samples than this, and a few large likelihoods make up the marginal.
FEW_SAMPLES = 20


@dataclass(frozen=True)
class Score:
    """How well a model predicts a text.

    Attributes:
        nats: ``-log p`` per token.
        tokens: the number of targets scored.
        stderr: the standard error of ``nats`` over the noise, for a score that has noise; nan where
            it cannot be told.
    """

    nats: float
    tokens: int
    stderr: float | None = None

    @property
    def perplexity(self) -> float:
        """``exp(nats)``; its standard error is ``perplexity * stderr``."""
        return math.exp(self.nats) if self.nats < 709 else math.inf


def perplexity(
    model: LanguageModel,
    ids: Any,
    *,
    batch_size: int = 10,
    length: int = 70,
    temperature: float = 1.0,
) -> Score:
    """The score of the clean model: noise and dropout off, whatever ``train()`` says.

    Args:
        model: the language model; it is left as it was.
        ids: the text, a one-dimensional array of word numbers.
        batch_size: the number of columns that it is cut into. All but the first begin without
            history, and the tail that does not fill a row is left out; 1 scores the whole text.
        length: how many rows to compute at a time. It does not change the score.
        temperature: divides the natural parameters.
    """
    _check(model, 1, temperature)
    total, tokens, state = 0.0, 0, None
    with as_training(model, on=False), torch.no_grad():
        for x, target in _windows(model, ids, batch_size, length):
            z, state = model.encode(x, state)
            total += _nll(model, z, target, temperature).sum().item()
            tokens += target.numel()
    return Score(total / tokens, tokens)


def marginal(
    model: LanguageModel,
    ids: Any,
    K: int,
    *,
    batch_size: int = 10,
    length: int = 35,
    temperature: float = 1.0,
) -> Score:
    """The marginal likelihood of ``length`` words at a time, by K samples of the noise.

    Each sample has a history of its own and accounts for all words of a window together,
    ``log (1/K) Σ_k Π_t p(x_t | z_t^(k))``. The longer the windows, the more samples this takes, and
    with too few the estimate is too low; ``stderr`` is nan where that shows.
    """
    tally = _Tally()
    with _noisy(model, K, temperature):
        for z, target in _sampled(model, ids, K, batch_size, length):
            log_p = -_nll(model, z, target, temperature).sum(1)
            weights = K * log_p.softmax(0)
            if K**2 / weights.square().sum(0).max() < FEW_SAMPLES:
                weights = weights * math.nan
            tally.add(_log_mean_exp(log_p), weights, target.numel())
    return tally.score()


def arithmetic(
    model: LanguageModel,
    ids: Any,
    K: int,
    *,
    batch_size: int = 10,
    length: int = 35,
    temperature: float = 1.0,
) -> Score:
    """The ensemble that averages the *probabilities* of K samples of the noise, word by word."""
    tally = _Tally()
    with _noisy(model, K, temperature):
        for z, target in _sampled(model, ids, K, batch_size, length):
            log_p = -_nll(model, z, target, temperature)
            weights = K * log_p.softmax(0)
            tally.add(_log_mean_exp(log_p), weights.sum(1), target.numel())
    return tally.score()


def geometric(
    model: LanguageModel,
    ids: Any,
    K: int,
    *,
    batch_size: int = 10,
    length: int = 35,
    temperature: float = 1.0,
) -> Score:
    """The ensemble that averages the *log* probabilities of K samples, word by word, normalised.

    That is the prediction from the mean of z. In strong mode it tends to the clean model.
    """
    tally = _Tally()
    with _noisy(model, K, temperature):
        for z, target in _sampled(model, ids, K, batch_size, length):
            mean = z.mean(0).requires_grad_()
            with torch.enable_grad():
                nll = _nll(model, mean, target, temperature)
                (slope,) = torch.autograd.grad(nll.sum(), mean)
            tally.add(-nll.detach(), -(slope * (z - mean)).sum((1, 3)), target.numel())
    return tally.score()


class _Tally:
    """Sums ``log p``, and beside it what each sample adds to that sum, to first order.

    The samples of a row share its text but no noise, so the spread of their contributions over the
    whole text gives the standard error, however long the noise of one step is felt.
    """

    def __init__(self) -> None:
        self.log_p = 0.0
        self.tokens = 0
        self.contributions: Tensor | float = 0.0

    def add(self, log_p: Tensor, contributions: Tensor, tokens: int) -> None:
        """Add the ``log p`` of a window and the contributions to it, ``(K, N)``."""
        self.log_p += log_p.sum().item()
        self.contributions = self.contributions + contributions.double()
        self.tokens += tokens

    def score(self) -> Score:
        assert isinstance(self.contributions, Tensor)
        K = len(self.contributions)
        stderr = math.nan
        if K > 1:
            stderr = math.sqrt(self.contributions.var(0).sum() / K) / self.tokens
        return Score(-self.log_p / self.tokens, self.tokens, stderr)


@contextmanager
def _noisy(model: LanguageModel, K: int, temperature: float) -> Iterator[None]:
    """The noise on, dropout off, no gradients."""
    _check(model, K, temperature)
    with as_training(model, on=False), noise_on(model), torch.no_grad():
        if not any(module._noise_acts() for module in injected_modules(model)):
            raise InvalidValue(
                "evaluation: expected a model with noise to draw K samples of, got one without "
                "(dropout is off in evaluation). Use evaluation.perplexity, or give it noise: "
                "noisin.set_noise(model, noise)."
            )
        yield


def _sampled(
    model: LanguageModel, ids: Any, K: int, batch_size: int, length: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """What the prediction reads in each of K samples, ``(K, T, N, H)``, and the targets."""
    state = None
    for x, target in _windows(model, ids, batch_size, length):
        z, state = model.encode(x.repeat(1, K), state)
        yield z.view(len(z), K, -1, z.shape[-1]).transpose(0, 1), target


def _windows(
    model: LanguageModel, ids: Any, batch_size: int, length: int
) -> Iterator[tuple[Tensor, Tensor]]:
    for window in Windows(ids, batch_size, length).epoch(0):
        yield window.x.to(model.bias.device), window.target.to(model.bias.device)


def _nll(model: LanguageModel, z: Tensor, target: Tensor, temperature: float) -> Tensor:
    """``-log p(target)`` in float64, for z of ``(..., T, N, H)``; it tempers z in place of s."""
    x = target.expand(z.shape[:-1])
    return linear_nll(z / temperature, model.V, x, model.bias / temperature).double()


def _log_mean_exp(log_p: Tensor) -> Tensor:
    return log_p.logsumexp(0) - math.log(len(log_p))


def _check(model: LanguageModel, K: int, temperature: float) -> None:
    if not isinstance(model, LanguageModel):
        raise InvalidType(f"evaluation: expected a LanguageModel, got {type(model).__name__}.")
    arguments.whole("evaluation: K", K, what="a whole number of noise samples")
    arguments.finite(
        "evaluation: temperature",
        temperature,
        above=0,
        advice="Use 1 for the model's own probabilities.",
    )
