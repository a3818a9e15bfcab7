"""Bounds of the likelihood of stochastic RNNs, by K samples of their latent variables.

All three are below the log likelihood on average: the evidence lower bound, that of importance
weights, which grows with K, and that of a particle filter. The noise is off.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noisin._util import arguments
from noisin.data import Batch
from noisin.errors import InvalidType
from noisin.models.base import State
from noisin.models.latent.base import LatentModel
from noisin.models.latent.bounds import particle_bound
from noisin.recurrent.injection import as_training
from noisin.training.predictors.base import check_model, device_of


@dataclass(frozen=True)
class LatentBound:
    """A bound of a model with latent variables.

    Args:
        model: the model.
        K: the number of samples, or of particles.
        temperature: 1; others are not defined.
    """

    model: nn.Module
    K: int = 1
    temperature: float = 1.0

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_model(self.model, self.temperature)
        if not isinstance(self.model, LatentModel):
            raise InvalidType(
                f"{name}: expected a model with latent variables, such as a VRNN, got "
                f"{type(self.model).__name__}, whose likelihood is exact. Use Clean(model)."
            )
        arguments.whole(f"{name}: K", self.K, what="a whole number of samples")

    def __call__(self, batch: Batch, state: State = None) -> tuple[Tensor, State]:
        """The part of each target in the bound, ``(T, N)``, and the state."""
        with as_training(self.model, on=False), torch.no_grad():
            return self._bound(batch.to(device_of(self.model)), state)

    def _bound(self, batch: Batch, state: State) -> tuple[Tensor, State]:
        raise NotImplementedError


@dataclass(frozen=True)
class ELBO(LatentBound):
    """The evidence lower bound, averaged over K samples, with the KL divergence in closed form."""

    def _bound(self, batch: Batch, state: State) -> tuple[Tensor, State]:
        assert isinstance(self.model, LatentModel)
        log_p, state = self.model.log_prob(batch.repeat(self.K), state)
        return log_p.view(len(log_p), self.K, -1).mean(1), state


@dataclass(frozen=True)
class IWAE(LatentBound):
    """The importance-weighted bound: K samples of a whole sequence, whose weights are averaged."""

    def _bound(self, batch: Batch, state: State) -> tuple[Tensor, State]:
        assert isinstance(self.model, LatentModel)
        return particle_bound(self.model, batch, state, K=self.K)


@dataclass(frozen=True)
class FIVO(LatentBound):
    """The bound of a particle filter: particles are resampled if few have most of the weight.

    Args:
        model, K, temperature: those of :class:`LatentBound`.
        threshold: the share of K that the effective number of particles must exceed.
    """

    threshold: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        arguments.finite("FIVO: threshold", self.threshold, least=0)

    def _bound(self, batch: Batch, state: State) -> tuple[Tensor, State]:
        assert isinstance(self.model, LatentModel)
        return particle_bound(self.model, batch, state, K=self.K, threshold=self.threshold)
