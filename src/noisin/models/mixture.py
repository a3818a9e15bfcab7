"""The mixture of softmaxes as a head."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from noisin._util import arguments, checks
from noisin.data.batch import Batch
from noisin.likelihoods import Likelihood
from noisin.likelihoods.mixture import mixture_nll
from noisin.models.base import State
from noisin.models.word_head import WordHead
from noisin.regularizers.sequences import Dropout


class MixtureOfSoftmaxes(WordHead):
    r"""K softmaxes over the same words (Yang et al., 2017, *Breaking the Softmax Bottleneck*).

    .. math::
        \log p(x | z) = \log \sum_k \pi_k(z) \, \mathrm{softmax}(V^\top h_k(z) + b)_x, \qquad
        \pi = \mathrm{softmax}(W_\pi z), \quad h_k = \tanh(W_k z + b_k)

    The matrix of log-probabilities is not limited to the rank of V. All is computed in log space,
    and the loss in chunks: no tensor has tokens, experts and words.

    Args:
        in_features: the size of z.
        out_features: the number of words.
        likelihood: :class:`~noisin.likelihoods.Categorical`.
        bias: the initial bias b, ``(out_features,)``; zeros by default.
        embedding: the weights of an embedding, ``(out_features, E)``, to use as V; None for own.
        experts: the number K of softmaxes.
        dropout: the drop rate of all ``h_k``, with one mask for all steps.
        size: the size E of ``h_k``, without an embedding; ``in_features`` by default.
        generator: the random stream of initialisation and dropout.

    >>> from noisin.likelihoods import Categorical
    >>> head = MixtureOfSoftmaxes(4, 10, Categorical(), experts=3)
    >>> log_p = head.predict(torch.randn(5, 2, 4))
    >>> log_p.shape, bool((log_p.logsumexp(-1).abs() < 1e-5).all())
    (torch.Size([5, 2, 10]), True)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        likelihood: Likelihood,
        bias: Tensor | None = None,
        *,
        embedding: nn.Parameter | None = None,
        experts: int = 15,
        dropout: float = 0.0,
        size: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        name = "MixtureOfSoftmaxes"
        arguments.whole(f"{name}: in_features", in_features)
        arguments.whole(f"{name}: experts", experts)
        checks.require_generator(name, generator)
        if embedding is not None:
            checks.require_real(name, embedding=embedding)
        if size is None:
            size = in_features if embedding is None or embedding.dim() == 0 else embedding.shape[-1]
        arguments.whole(f"{name}: size", size)
        super().__init__(size, out_features, likelihood, bias, embedding)
        self.experts = experts
        self.prior = nn.Linear(in_features, experts, bias=False)
        self.latent = nn.Linear(in_features, experts * size)
        self.dropout = Dropout(dropout, locked=True, generator=generator)
        self.reset_parameters(generator)

    def nll(self, z: Tensor, batch: Batch, memory: State = None) -> tuple[Tensor, State]:
        """``-log p`` of each target, ``(T, N)``."""
        del memory  # it has none
        latent, log_prior = self._experts(z)
        return mixture_nll(latent, self.weight.t(), batch.target, log_prior, self.bias), None

    def mean_nll(self, z: Tensor, batch: Batch, memory: State = None) -> tuple[Tensor, State]:
        """The mean over the scored targets, with its gradient in one pass."""
        del memory  # it has none
        latent, log_prior = self._experts(z)
        target = batch.target
        if batch.scored is not None:
            latent, log_prior, target = (t[batch.scored] for t in (latent, log_prior, target))
        V = self.weight.t()
        return mixture_nll(latent, V, target, log_prior, self.bias, reduction="mean"), None

    def predict(self, z: Tensor, memory: State = None) -> Tensor:
        """Log-probabilities, ``(T, N, O)``, expert by expert."""
        del memory  # it has none
        latent, log_prior = self._experts(z)
        total = None
        for h, log_pi in zip(latent.unbind(-2), log_prior.unbind(-1), strict=True):
            log_p = (h @ self.weight.t() + self.bias).log_softmax(-1) + log_pi.unsqueeze(-1)
            total = log_p if total is None else torch.logaddexp(total, log_p)
        assert total is not None
        return total

    def _experts(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The hidden states of the experts, ``(T, N, K, E)``, and ``log π``, ``(T, N, K)``."""
        h: Tensor = self.dropout(self.latent(z).tanh())
        return h.view(*z.shape[:-1], self.experts, -1), self.prior(z).log_softmax(-1)

    def extra_repr(self) -> str:
        """Sizes."""
        words, size = self.weight.shape
        return f"experts={self.experts}, size={size}, words={words}, tied={self.tied}"
