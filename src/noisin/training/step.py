"""One training step: loss, gradient, clipping, update, average."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisin._util import states
from noisin.data import Batch
from noisin.models.base import Loss
from noisin.recurrent import kernels
from noisin.training.annealing import anneal
from noisin.training.config import TrainConfig
from noisin.training.objectives import build_objective
from noisin.training.optim import shrink
from noisin.training.runtime.device import random_state
from noisin.training.runtime.workers import Workers
from noisin.training.state import TrainState, means_of


@dataclass(frozen=True)
class Gradient:
    """The gradient of a batch, which the parameters have.

    Attributes:
        norm: its norm before clipping.
        forward: computes the loss of the batch again.
        drawn_from: the states of the generators before the loss was computed.
    """

    norm: Tensor
    forward: Callable[[], Any]
    drawn_from: Mapping[str, Tensor]


class Stepper:
    """The two halves of a step, between which the trainer checks that the loss is finite.

    Args:
        train: the recipe.
        workers: the processes that share the batch.
        seed: of the random resets of the state.
    """

    def __init__(self, train: TrainConfig, workers: Workers, seed: int) -> None:
        self.train, self.workers, self.seed = train, workers, seed
        self.objective = build_objective(train)

    def gradient(self, state: TrainState, batch: Batch) -> Gradient:
        """Compute the gradient of a batch, clip it, and count the loss."""
        anneal(state.model, self.train, state.epoch, state.step)
        mine = self.workers.share(state.model, batch)
        carried = self._carried(state, batch)
        forward = partial(self._loss, state, mine.to(state.device), carried)
        drawn_from = random_state(state.device)
        loss = forward()
        state.carried = loss.state if batch.carries else None
        state.optimizer.zero_grad()
        targets, means = batch.count, means_of(loss)
        weight = self.workers.weight(mine.count, targets)
        torch.autograd.backward(loss.objective if weight == 1 else weight * loss.objective)
        gradients = [p.grad for p in state.parameters if p.grad is not None]
        self.workers.average([*gradients, *(mean.mul_(weight) for mean in means.values())])
        norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
        if self.train.clip:
            clip = torch.nn.utils.clip_grads_with_norm_
            clip(state.parameters, self.train.clip, norm, foreach=True)
        state.count(means, targets)
        return Gradient(norm, forward, drawn_from)

    def update(self, state: TrainState, batch: Batch) -> None:
        """Update the weights and their average, and count the batch."""
        for group in state.optimizer.param_groups:
            group["lr"] = state.schedule.lr * batch.lr_scale
        state.optimizer.step()
        if self.train.shrink:
            shrink(state.parameters, self.train.shrink)
        if state.average is not None:
            state.average.update()
        state.advance(batch)

    def _loss(self, state: TrainState, batch: Batch, carried: Any) -> Loss:
        """The loss of a batch; on a CPU our kernel is faster than torch's GRU and Elman layers."""
        on_cpu = state.device.type == "cpu"
        with kernels.everywhere("c") if on_cpu else nullcontext():
            return self.objective(state.model, batch, carried, self.train.K)

    def _carried(self, state: TrainState, batch: Batch) -> Any:
        """The state to start the batch from; None for zeros."""
        if not batch.carries or self._resets(state.epoch, batch.start):
            return None
        return states.detach(state.carried)

    def _resets(self, epoch: int, start: int) -> bool:
        """Whether the state is reset before a batch: it depends on the seed and its place alone."""
        if not self.train.state_reset:
            return False
        random = np.random.RandomState([self.seed, epoch, start, 2])
        return bool(random.random_sample() < self.train.state_reset)
