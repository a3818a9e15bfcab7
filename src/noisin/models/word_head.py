"""What the heads of words have in common, and any of them at another temperature."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from noisin._util import arguments, checks
from noisin.data.batch import Batch
from noisin.errors import InvalidType, InvalidValue
from noisin.likelihoods import Categorical, Likelihood
from noisin.models.base import Head, State, mean_over_scored, remember


class WordHead(nn.Module):
    """A head with a prediction matrix for words: its own, or that of an embedding.

    ``predict`` returns log-probabilities.

    Args:
        size: the number of rows of the prediction matrix; with an embedding, the embedding's size.
        out_features: the number of words.
        likelihood: :class:`~noisin.likelihoods.Categorical`.
        bias: the initial bias of the words, ``(out_features,)``; zeros by default.
        embedding: the weights of an embedding to share, ``(out_features, size)``; None for own
            weights.
    """

    def __init__(
        self,
        size: int,
        out_features: int,
        likelihood: Likelihood,
        bias: Tensor | None,
        embedding: nn.Parameter | None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        arguments.whole(f"{name}: out_features", out_features)
        if not isinstance(likelihood, Categorical):
            raise InvalidType(
                f"{name}: predicts words, so the likelihood must be Categorical, got "
                f"{likelihood!r:.60}. Use the linear head for other data."
            )
        if embedding is not None:
            checks.require_real(name, embedding=embedding)
        if embedding is not None and embedding.shape != (out_features, size):
            raise InvalidValue(
                f"{name}: expected an embedding of shape {(out_features, size)}, got "
                f"{tuple(embedding.shape)}. Use layers whose last one has the size of the "
                f"embedding, or own weights."
            )
        if bias is not None:
            checks.require_real(name, bias=bias)
        if bias is not None and bias.shape != (out_features,):
            raise InvalidValue(
                f"{name}: expected a bias of shape ({out_features},), got {tuple(bias.shape)}."
            )
        self.likelihood = likelihood
        self.tied = embedding is not None
        own = torch.empty(out_features, size)
        shared = embedding if isinstance(embedding, nn.Parameter) else None
        if embedding is not None and shared is None:
            raise InvalidType(f"{name}: embedding must be a Parameter, such as embedding.weight.")
        self.weight = nn.Parameter(own) if shared is None else shared
        self.bias = nn.Parameter(torch.zeros(out_features))
        if bias is not None:
            if bias.is_meta and not self.bias.is_meta:
                raise InvalidValue(f"{name}: the bias is on the meta device and has no values.")
            with torch.no_grad():
                self.bias.copy_(bias)

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Own weights uniform on ±1/√(their inputs), biases zero but for that of the words."""
        with torch.no_grad():
            for module in self.children():
                if isinstance(module, nn.Linear):
                    bound = module.in_features**-0.5
                    module.weight.uniform_(-bound, bound, generator=generator)
                    if module.bias is not None:
                        module.bias.zero_()
            if not self.tied:
                bound = self.weight.shape[1] ** -0.5
                self.weight.uniform_(-bound, bound, generator=generator)

    def mean_nll(self, z: Tensor, batch: Batch, memory: State = None) -> tuple[Tensor, State]:
        """The mean nll of the scored targets."""
        nll, memory = self.nll(z, batch, memory)
        return mean_over_scored(nll, batch), memory

    def nll(self, z: Tensor, batch: Batch, memory: State = None) -> tuple[Tensor, State]:
        """``-log p`` of each target."""
        raise NotImplementedError

    def predict(self, z: Tensor, memory: State = None) -> Tensor:
        """Log-probabilities, ``(T, N, O)``."""
        raise NotImplementedError

    def tempered(self, temperature: float) -> Tempered:
        """The prediction with all log-probabilities divided by ``temperature``."""
        return Tempered(self, temperature)


@dataclass(frozen=True)
class Tempered:
    """A head of words with ``p^(1/temperature)``, normalised, in place of p.

    The log-probabilities are natural parameters of the prediction, so this is what dividing the
    natural parameters of a linear head is.
    """

    head: Head
    temperature: float

    def predict(self, z: Tensor, memory: State = None) -> Tensor:
        """Log-probabilities, ``(T, N, O)``."""
        return (self.head.predict(z, memory) / self.temperature).log_softmax(-1)

    def nll(self, z: Tensor, batch: Batch, memory: State = None) -> tuple[Tensor, State]:
        """``-log p`` of each target."""
        during, after = remember(self.head, z, batch.x, memory)
        log_p = self.predict(z, during)
        return -log_p.gather(-1, batch.target.long().unsqueeze(-1)).squeeze(-1), after

    def mean_nll(self, z: Tensor, batch: Batch, memory: State = None) -> tuple[Tensor, State]:
        """The mean nll of the scored targets."""
        nll, after = self.nll(z, batch, memory)
        return mean_over_scored(nll, batch), after
