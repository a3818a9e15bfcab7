"""What predictors have in common: the interface, the score of some batches, the clean model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from noisin._util import arguments
from noisin.data import Batch
from noisin.errors import InvalidType, InvalidValue
from noisin.models import SequenceModel, Trainable
from noisin.models.base import State
from noisin.recurrent.injection import as_training
from noisin.tasks.unit import Score
from noisin.training import samples
from noisin.training.runtime.device import in_float64


class Predictor(Protocol):
    """Scores a batch: ``log p`` of each target, ``(T, N)``, and the state.

    A predictor with an attribute ``rows`` is given batches of so many rows by :func:`evaluate`.
    """

    def __call__(self, batch: Batch, state: State = None) -> tuple[Tensor, State]:
        """Score a batch, starting from ``state``."""
        ...


class Reading(NamedTuple):
    """What a predictor with one hidden state knows of a batch.

    Attributes:
        log_p: of each target, ``(T, N)``.
        z: what the head reads, ``(T, N, H)``; None for a model that is no SequenceModel.
        state: the state after the batch.
    """

    log_p: Tensor
    z: Tensor | None
    state: State


@runtime_checkable
class Reader(Protocol):
    """A predictor with one hidden state, that others can be put around."""

    @property
    def model(self) -> nn.Module:
        """The model that it predicts with."""
        ...

    def read(self, batch: Batch, state: State = None) -> Reading:
        """Score a batch; the result is differentiable where gradients are enabled."""
        ...

    def __call__(self, batch: Batch, state: State = None) -> tuple[Tensor, State]:
        """Score a batch, starting from ``state``."""
        ...


@dataclass
class Tally:
    """Sums over the targets that were scored, from which the score is computed.

    Attributes:
        log_p: the sum of ``log p``.
        count: the number of targets.
        errors: standard errors of ``log_p``, one for each of several independent groups of
            sequences, if a predictor draws noise.
    """

    log_p: float = 0.0
    count: int = 0
    errors: list[float] = field(default_factory=list)

    @property
    def score(self) -> Score:
        """``-log p`` per target, with its standard error."""
        if not self.count:
            raise InvalidValue("evaluate: expected batches with scored targets, got none.")
        stderr = math.hypot(*self.errors) / self.count if self.errors else None
        return Score(-self.log_p / self.count, self.count, stderr)


def evaluate(
    predictor: Predictor,
    batches: Iterable[Batch],
    poll: Callable[[], None] = lambda: None,
    progress: Callable[[Score], None] = lambda _: None,
    each: Callable[[Batch, Tensor], None] = lambda *_: None,
) -> Score:
    """The score of some batches: ``-log p`` per scored target.

    Args:
        predictor: scores the batches.
        batches: the data, such as ``task.batches("test")`` or ``data.Windows(...).epoch(0)``.
        poll: called before every batch; it can raise to stop the evaluation.
        progress: called after every batch with the score so far, without a standard error.
        each: called with every batch and ``log p`` of its targets, ``(T, N)``.
    """
    return tally(predictor, batches, poll, progress, each).score


def tally(
    predictor: Predictor,
    batches: Iterable[Batch],
    poll: Callable[[], None] = lambda: None,
    progress: Callable[[Score], None] = lambda _: None,
    each: Callable[[Batch, Tensor], None] = lambda *_: None,
) -> Tally:
    """As :func:`evaluate`, but the sums: where processes share the batches, theirs are added."""
    sums, state = Tally(), None
    rows = getattr(predictor, "rows", None)
    for batch in batches if rows is None else in_rows(batches, rows):
        poll()
        if not batch.carries:
            sums.errors += _error(state)
        log_p, state = predictor(batch, state if batch.carries else None)
        scored = log_p if batch.scored is None else log_p[batch.scored.to(log_p.device)]
        sums.log_p += in_float64(scored).sum().item()
        sums.count += batch.count
        each(batch, log_p)
        if sums.count:
            progress(Score(-sums.log_p / sums.count, sums.count))
    sums.errors += _error(state)
    return sums


def _error(state: State) -> list[float]:
    """The standard error of the nats of what a predictor has read, if it draws noise."""
    return [state.stderr(1)] if hasattr(state, "stderr") else []


def in_rows(batches: Iterable[Batch], rows: int) -> Iterator[Batch]:
    """The same data in batches of ``rows`` rows; only the last one of a sequence is shorter.

    >>> x = torch.arange(7).view(7, 1)
    >>> [len(b.x) for b in in_rows([Batch(x[:4], x[:4]), Batch(x[4:], x[4:])], 3)]
    [3, 3, 1]
    """
    left: Batch | None = None
    for batch in batches:
        if left is not None and batch.carries:
            batch = left.followed_by(batch)
        elif left is not None:
            yield left
        while len(batch.x) > rows:
            yield batch.rows(slice(0, rows))
            batch = replace(batch.rows(slice(rows, None)), carries=True)
        left = batch
    if left is not None:
        yield left


@dataclass(frozen=True)
class Clean:
    """The model with noise and dropout off, in train and eval mode; its mode is restored.

    ``temperature`` divides the natural parameters.
    """

    model: nn.Module
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_model(self.model, self.temperature)

    def __call__(self, batch: Batch, state: State = None) -> tuple[Tensor, State]:
        """Score a batch."""
        with as_training(self.model, on=False), torch.no_grad():
            return log_prob(self.model, batch, state, self.temperature)

    def read(self, batch: Batch, state: State = None) -> Reading:
        """Score a batch, and return what the head read."""
        model = self.model
        with as_training(model, on=False):
            if isinstance(model, SequenceModel):
                batch = batch.to(device_of(model))
                return Reading(*model.read(batch, state, temperature=self.temperature))
            log_p, state = log_prob(model, batch, state, self.temperature)
            return Reading(log_p, None, state)


def as_reader(name: str, given: object) -> Reader:
    """A predictor to put ``name`` around; a model is used without noise."""
    if isinstance(given, nn.Module):
        return Clean(given)
    if isinstance(given, Reader) and not isinstance(given, type):
        return given
    mixes = hasattr(given, "K")
    why = ", which mixes samples that have a hidden state each" if mixes else ""
    raise InvalidType(
        f"{name}: expected a model or a predictor with one hidden state, such as Clean(model), "
        f"got {type(given).__name__}{why}."
    )


def log_prob(
    model: nn.Module, batch: Batch, state: State, temperature: float, K: int = 1
) -> tuple[Tensor, State]:
    """``log p`` of each target under K samples, and the state."""
    options: dict[str, Any] = {} if temperature == 1 else {"temperature": temperature}
    return samples.log_prob(model, batch.to(device_of(model)), state, K, **options)


def device_of(model: nn.Module) -> torch.device:
    """Where the model is."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def check_model(model: object, temperature: float) -> None:
    """Raise unless the model can be scored at this temperature."""
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
