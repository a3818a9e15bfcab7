"""The interface between a model and the trainer, and the parts of a model.

::

    files --Task--> Batch --model.loss--> Loss --Trainer--> RunRecord --Unit--> table, report

Any module with ``loss`` and ``log_prob`` can be trained. A :class:`~.sequence.SequenceModel`
consists of an encoder, layers, a head and terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from noisin.data.batch import Batch
from noisin.regularizers.terms import Trace

State = Any  # a tree of tensors whose batch is dimension -2, or None for zeros


@dataclass(frozen=True)
class Loss:
    """What training minimises on one batch.

    Attributes:
        mean: the mean of ``-log p`` over the scored targets, in nats. It is a mean and not a sum
            because the chunked softmax computes the gradient of the mean in one pass.
        count: the number of scored targets.
        terms: the weighted penalties per target, by name, that are added to the mean.
        state: the state after the batch.
        nll: ``-log p`` of each target, ``(T, N)``, if it was asked for.
        trace: the activations of a sequence model, for objectives that compare passes.
        measured: means over the targets that are recorded, but not minimised.
    """

    mean: Tensor
    count: int
    terms: Mapping[str, Tensor] = field(default_factory=dict)
    state: State = None
    nll: Tensor | None = None
    trace: Trace | None = None
    measured: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def objective(self) -> Tensor:
        """The mean plus all terms: the scalar to differentiate."""
        total = self.mean
        for term in self.terms.values():
            total = total + term
        return total


@runtime_checkable
class Trainable(Protocol):
    """The interface of a model for the trainer: an ``nn.Module`` with these two methods."""

    def loss(self, batch: Batch, state: State = None) -> Loss:
        """The loss of a batch, starting from ``state``."""
        ...

    def log_prob(self, batch: Batch, state: State = None) -> tuple[Tensor, State]:
        """``log p`` of each target, ``(T, N)``, and the state; a lower bound for latent models."""
        ...


class Head(Protocol):
    """Maps z to a prediction. It can carry a memory from batch to batch.

    A head whose prediction depends on its memory has ``remember(z, x, memory)``. It returns the
    memory that :meth:`predict` reads for the steps of z, and the one to carry to the next batch.
    A head can add penalties to the loss: a sequence ``terms``.
    """

    def nll(self, z: Tensor, batch: Batch, memory: State = None) -> tuple[Tensor, State]:
        """``-log p`` of each target, ``(T, N)``, and the memory."""
        ...

    def mean_nll(self, z: Tensor, batch: Batch, memory: State = None) -> tuple[Tensor, State]:
        """The mean of :meth:`nll` over the scored targets, at less cost where possible."""
        ...

    def predict(self, z: Tensor, memory: State = None) -> Tensor:
        """Log-probabilities or natural parameters, ``(T, N, O)``."""
        ...


def remember(head: Any, z: Tensor, x: Tensor, memory: State) -> tuple[State, State]:
    """The memory that a head reads to predict from z, and the one to carry to the next batch."""
    if not hasattr(head, "remember"):
        return memory, None
    during, after = head.remember(z, x, memory)
    return during, after


def mean_over_scored(nll: Tensor, batch: Batch) -> Tensor:
    """The mean of values ``(T, N)`` over the scored targets."""
    return nll.mean() if batch.scored is None else nll[batch.scored].mean()
