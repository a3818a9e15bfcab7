r"""Objectives: what training minimises on a batch.

An objective maps a model, a batch, a state and the number K of noise samples to a
:class:`~noisin.models.Loss`. Whatever it minimises, ``Loss.mean``, the recorded training score, is
the mean of ``-log p`` over the noise, so that runs of all objectives can be compared. What an
objective adds to it is one of the terms of the loss.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from torch import Tensor

from noisin.analysis import Penalty
from noisin.data import Batch
from noisin.errors import Unsupported
from noisin.models import Loss
from noisin.models.base import State, mean_over_scored
from noisin.models.heads import Dense, Linear
from noisin.noise import Noise
from noisin.recurrent.functional import Mode
from noisin.recurrent.injection import as_training
from noisin.regularizers.terms import Trace
from noisin.training import samples
from noisin.training.config import TrainConfig
from noisin.training.config.objective import FraternalMode, Group


class Objective(Protocol):
    """What training minimises on a batch, given K samples of the noise."""

    def __call__(self, model: Any, batch: Batch, state: State, K: int) -> Loss:
        """The loss of a batch, starting from ``state``."""
        ...


class NoiseObjective:
    """The objective of the paper: the mean over K noise samples of ``-log p``, and the terms."""

    def __call__(self, model: Any, batch: Batch, state: State, K: int) -> Loss:
        """The loss of a batch."""
        return samples.loss(model, batch, state, K)


@dataclass(frozen=True)
class ImportanceObjective:
    r"""The importance-weighted objective of Noh et al. (2017): ``-log (1/K) Σ_k p(y | ε_k)``.

    It lies between the paper's objective and the marginal likelihood, and approaches the latter
    with K. Its gradient is ``Σ_k w_k ∇(-log p_k)`` with the weights ``w = softmax_k(log p_k)``: the
    better a sample predicts the targets, the more it counts. With K = 1 it is the usual loss.

    ``group`` decides which targets have a weight in common. ``"window"`` weights a whole column of
    the window, ``p_k = Π_t p(y_t | ε_k)``, which is a bound of its marginal; with many targets one
    sample has nearly all of the weight. ``"token"`` weights each target by itself. That keeps more
    samples, but is not a bound of the marginal of the sequence, because the states of the samples
    are not weighted by how well they predicted the targets before. The effective number of samples,
    ``1/Σ_k w_k²``, is recorded as its mean over the targets.

    The term ``importance`` is the difference to the mean of ``-log p``; it is never positive.
    """

    group: Group = "window"

    def __call__(self, model: Any, batch: Batch, state: State, K: int) -> Loss:
        """The loss of a batch."""
        if K == 1:
            return samples.loss(model, batch, state, K)
        loss = samples.losses(model, batch, state, K)
        assert loss.nll is not None
        log_p = -loss.nll.reshape(len(loss.nll), K, -1)  # (T, K, N)
        if batch.scored is not None:
            log_p = log_p.where(batch.scored.unsqueeze(1), 0.0)
        joint = log_p.sum(0, keepdim=True) if self.group == "window" else log_p
        bound = -(joint.logsumexp(1) - math.log(K)).sum() / batch.count
        effective = 1 / joint.detach().softmax(1).square().sum(1)
        mean = loss.mean.detach()  # its gradient is not part of the objective
        return replace(
            loss,
            mean=mean,
            terms={**loss.terms, "importance": bound - mean},
            measured={
                "effective_samples": mean_over_scored(effective.expand(batch.x.shape[:2]), batch)
            },
        )


@dataclass(frozen=True)
class FraternalObjective:
    r"""Fraternal dropout (Zolna et al., 2018): two passes whose predictions should agree.

    ``(CE_1 + CE_2)/2 + κ · mean((s_1 - s_2)²)``, where ``s_i`` are the logits of two passes with
    different noise and dropout from the same state; the mean is over targets and logits. The state
    and the terms are those of the first pass. Two related objectives have one cross-entropy,
    ``CE_1 + κ · mean((s_1 - s_2)²)``: ``"pi"`` (the Π-model, Laine and Aila, 2017) with the same
    second pass, ``"expectation-linear"`` (Ma et al., 2017) with a second pass without noise and
    dropout. Gradients flow through both passes.

    A step takes about twice as long. The term ``fraternal`` is the penalty times κ.
    """

    kappa: float = 0.15
    mode: FraternalMode = "fraternal"

    def __call__(self, model: Any, batch: Batch, state: State, K: int) -> Loss:
        """The loss of a batch."""
        loss = samples.loss(model, batch, state, K)
        trace, mean = _traced(model, loss), loss.mean
        if self.mode == "fraternal":
            other = samples.loss(model, batch, state, K)
            z, mean = _traced(model, other).read[-1], (mean + other.mean) / 2
        else:
            clean = self.mode == "expectation-linear"
            with as_training(model, on=False) if clean else nullcontext():
                z, _ = samples.encode(model, batch, state, K)
        distance = logit_distance(trace.read[-1] - z, trace.head, batch.repeat(K))
        terms = {**loss.terms, "fraternal": self.kappa * distance}
        return replace(loss, mean=mean, terms=terms)


def _traced(model: Any, loss: Loss) -> Trace:
    if loss.trace is None or not isinstance(loss.trace.head, Linear | Dense):
        raise Unsupported(
            f"training: train.objective = 'fraternal' compares the logits of two passes, which "
            f"{type(model).__name__} does not give. Use a SequenceModel with a linear head."
        )
    return loss.trace


def logit_distance(d: Tensor, head: Linear | Dense, batch: Batch) -> Tensor:
    r"""``mean((s_1 - s_2)²)`` over the scored targets and the O logits of a linear head.

    With ``d = z_1 - z_2``, ``(T, N, H)``, and ``G = V V^T``, it is the mean of ``d G d^T / O``: the
    ``(T·N, O)`` logits are never computed, which also takes less time unless H exceeds T·N.
    """
    rows = d.flatten(0, 1) if batch.scored is None else d[batch.scored]
    V = head.V
    return ((rows @ (V @ V.t())) * rows).sum() / (len(rows) * V.shape[1])


def build_objective(train: TrainConfig) -> Objective:
    """The objective of the settings. Noise as a penalty is a term of the model."""
    if train.importance is not None:
        return ImportanceObjective(train.importance.group)
    if train.fraternal is not None:
        return FraternalObjective(train.fraternal.kappa, train.fraternal.mode)
    return NoiseObjective()


@dataclass
class NoisePenalty:
    """The explicit regularizer of noise on the last layer, without feedback, as a term.

    Attributes:
        noise: the noise; a schedule replaces it in each epoch.
        mode: the mode of injection.
    """

    noise: Noise
    mode: Mode

    name: ClassVar[str] = "penalty"

    def __call__(self, trace: Trace, batch: Batch) -> Tensor:
        """The penalty per target."""
        head = trace.head
        penalty = Penalty(head.likelihood, self.noise, self.mode)
        return mean_over_scored(penalty(trace.read[-1], head.V, head.bias), batch)
