"""The augmented loss: the prediction also learns which words are like the target."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from noisin._util import arguments, torch_state
from noisin.errors import Unsupported
from noisin.regularizers.terms import Trace

if TYPE_CHECKING:
    from noisin.data.batch import Batch

CHUNK = 256  # rows of logits to compute at a time


@dataclass(frozen=True)
class AugmentedLoss:
    r"""Inan et al., 2016, *Tying Word Vectors and Word Classifiers*, as a term of the loss.

    With the embedding L, ``(O, E)``, the embedding u of the target and the logits s of a linear
    head, the mean over the targets of

    .. math::
        \alpha \, \mathrm{KL}(\tilde y \| \hat y), \qquad
        \tilde y = \mathrm{softmax}(L u / \tau), \quad \hat y = \mathrm{softmax}(s / \tau).

    The paper's ``alpha`` is ``gamma · temperature``. Scores are without the term, at temperature 1.

    Attributes:
        weight: ``alpha``.
        temperature: τ.
        detach: whether no gradient flows through the distribution of the embeddings.

    >>> from noisin.data import Batch
    >>> from noisin.models import LanguageModel
    >>> model = LanguageModel(10, hidden_size=4, terms=[AugmentedLoss(10.0, temperature=20.0)])
    >>> x = torch.randint(10, (6, 2))
    >>> list(model.loss(Batch(x[:-1], x[1:])).terms)
    ['augmented']
    """

    weight: float
    temperature: float = 20.0
    detach: bool = True

    name: ClassVar[str] = "augmented"

    def __post_init__(self) -> None:
        arguments.finite("AugmentedLoss: weight", self.weight, least=0)
        arguments.finite("AugmentedLoss: temperature", self.temperature, above=0)
        arguments.boolean("AugmentedLoss: detach", self.detach)

    def __call__(self, trace: Trace, batch: Batch) -> Tensor:
        """The penalty, a scalar."""
        head, L = trace.head, getattr(trace.encoder, "weight", None)
        if not hasattr(head, "V") or L is None:
            raise Unsupported(
                f"AugmentedLoss: is defined for an embedding of words and a linear head, got "
                f"{type(trace.encoder).__name__} and {type(head).__name__}. Leave it out."
            )
        z, target = trace.read[-1].flatten(0, 1), batch.target.flatten()
        if batch.scored is not None:
            scored = batch.scored.flatten()
            z, target = z[scored], target[scored]
        divergence = partial(self._divergence, head.V, head.bias, L)
        if not torch_state.transforming():  # torch.func cannot recompute
            divergence = partial(
                checkpoint, divergence, use_reentrant=False, preserve_rng_state=False
            )
        chunks = map(divergence, torch.split(z, CHUNK), torch.split(target, CHUNK))
        return self.weight * torch.cat(list(chunks)).mean()

    def _divergence(self, V: Tensor, bias: Tensor, L: Tensor, z: Tensor, target: Tensor) -> Tensor:
        """The divergence of each row; two products of logits at a time exist."""
        log_y = ((z @ V + bias) / self.temperature).log_softmax(-1)
        if self.detach:
            L = L.detach()
        log_of_likes = (L[target] @ L.t() / self.temperature).log_softmax(-1)
        return (log_of_likes.exp() * (log_of_likes - log_y)).sum(-1)
