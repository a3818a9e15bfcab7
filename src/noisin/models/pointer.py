"""The pointer sentinel as a head: a softmax over words, and an attention to the words just read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from noisin._util import arguments, checks
from noisin.data.batch import Batch
from noisin.likelihoods import Likelihood
from noisin.likelihoods.linear import linear_nll
from noisin.models.base import mean_over_scored
from noisin.models.word_head import WordHead
from noisin.regularizers.terms import Trace

Memory = tuple[Tensor, Tensor]  # keys (S, N, H) and the word of each (S, N, 1); -1 for none


class PointerSentinel(WordHead):
    r"""The pointer sentinel mixture (Merity et al., 2016, *Pointer Sentinel Mixture Models*).

    With ``q_t = tanh(W z_t + b)`` and the last L states ``z_i``, each after reading the word
    ``x_i``, the current one included:

    .. math::
        a = \mathrm{softmax}([q_t^\top z_{t-L+1}, ..., q_t^\top z_t, q_t^\top s]), \qquad
        p(w) = g \, p_{vocab}(w) + \sum_{i: x_i = w} a_i,

    where the gate g is the attention to the sentinel s. States of earlier batches are the memory of
    the head; the trainer detaches them, as it does other states. The loss has the paper's second
    term, ``-log(g + Σ_{i: x_i = target} a_i)``, as a term of its own: scores are without it.

    Args:
        in_features: the size H of z.
        out_features: the number of words.
        likelihood: :class:`~noisin.likelihoods.Categorical`.
        bias: the initial bias of the softmax, ``(out_features,)``; zeros by default.
        embedding: the weights of an embedding, ``(out_features, H)``, to share; None for own.
        window: the number L of words to point to.
        supervision: the weight of the second term of the loss; 0 leaves it out.
        generator: the random stream of the initialisation.

    >>> from noisin.likelihoods import Categorical
    >>> head = PointerSentinel(4, 10, Categorical(), window=3)
    >>> z, x = torch.randn(5, 2, 4), torch.randint(10, (5, 2))
    >>> memory, carried = head.remember(z, x, None)
    >>> bool((head.predict(z, memory).logsumexp(-1).abs() < 1e-5).all())
    True
    >>> [tuple(part.shape) for part in carried]
    [(3, 2, 4), (3, 2, 1)]
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        likelihood: Likelihood,
        bias: Tensor | None = None,
        *,
        embedding: nn.Parameter | None = None,
        window: int = 100,
        supervision: float = 1.0,
        generator: Generator | None = None,
    ) -> None:
        name = "PointerSentinel"
        arguments.whole(f"{name}: in_features", in_features)
        arguments.whole(f"{name}: window", window, what="a whole number of words")
        checks.require_generator(name, generator)
        super().__init__(in_features, out_features, likelihood, bias, embedding)
        self.window = window
        self.query = nn.Linear(in_features, in_features)
        self.sentinel = nn.Parameter(torch.empty(in_features))
        term = PointerSupervision(supervision)
        self.terms = (term,) if supervision else ()
        self.reset_parameters(generator)

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """The sentinel uniform on ±0.1: with a large one, g is near 1 and nothing is learnt."""
        super().reset_parameters(generator)
        with torch.no_grad():
            self.sentinel.uniform_(-0.1, 0.1, generator=generator)

    def remember(self, z: Tensor, x: Tensor, memory: Memory | None) -> tuple[Memory, Memory]:
        """The memory followed by the steps of z, and its last L steps, to carry."""
        if memory is None:
            shape = self.window, z.shape[1]
            memory = z.new_zeros(*shape, z.shape[-1]), x.new_full((*shape, 1), -1)
        keys, words = torch.cat([memory[0], z]), torch.cat([memory[1], x.unsqueeze(-1)])
        return (keys, words), (keys[-self.window :], words[-self.window :])

    def nll(self, z: Tensor, batch: Batch, memory: Memory | None = None) -> tuple[Tensor, Memory]:
        """``-log p`` of each target, ``(T, N)``, and the memory."""
        during, after = self.remember(z, batch.x, memory)
        log_a, log_g = self._attention(z, during)
        nll = linear_nll(z, self.weight.t(), batch.target, self.bias)
        pointed = log_mass(log_a, during[1], batch.target)
        return -torch.logaddexp(log_g - nll, pointed), after

    def predict(self, z: Tensor, memory: Memory | None = None) -> Tensor:
        """Log-probabilities, ``(T, N, O)``; the last steps of the memory are those of z."""
        log_p = (z @ self.weight.t() + self.bias).log_softmax(-1)
        if memory is None:
            return log_p
        log_a, log_g = self._attention(z, memory)
        words = memory[1].squeeze(-1).t().clamp_min(0).expand(log_a.shape)
        pointed = torch.zeros_like(log_p).scatter_add(-1, words, log_a.exp())
        tiny = torch.finfo(log_p.dtype).tiny
        return torch.logaddexp(log_g.unsqueeze(-1) + log_p, pointed.clamp_min(tiny).log())

    def _attention(self, z: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """``log a``, ``(T, N, S)``, of all S steps of the memory, and ``log g``, ``(T, N)``."""
        keys, words = memory
        T, S = len(z), len(keys)
        q = self.query(z).tanh()
        scores = torch.einsum("tnh,snh->tns", q, keys)
        now = torch.arange(S - T, S, device=z.device).unsqueeze(1)
        back = now - torch.arange(S, device=z.device)  # steps since
        near = ((back >= 0) & (back < self.window)).unsqueeze(1)
        scores = scores.masked_fill(~(near & (words.squeeze(-1).t() >= 0)), lowest(scores))
        log_a = torch.cat([scores, (q @ self.sentinel).unsqueeze(-1)], -1).log_softmax(-1)
        return log_a[..., :-1], log_a[..., -1]

    def extra_repr(self) -> str:
        """Sizes."""
        words, size = self.weight.shape
        return f"{size}, words={words}, window={self.window}, tied={self.tied}"


@dataclass(frozen=True)
class PointerSupervision:
    """``-weight · mean(log(g + Σ_{i: x_i = target} a_i))``, which teaches the attention.

    It asks the pointer for the target where the target is among the words just read, and the
    sentinel elsewhere.
    """

    weight: float

    name: ClassVar[str] = "pointer"

    def __post_init__(self) -> None:
        arguments.finite("PointerSentinel: supervision", self.weight, least=0)

    def __call__(self, trace: Trace, batch: Batch) -> Tensor:
        """The penalty, a scalar."""
        head, z = trace.head, trace.read[-1]
        memory, _ = head.remember(z, batch.x, trace.memory)
        log_a, log_g = head._attention(z, memory)
        mass = torch.logaddexp(log_g, log_mass(log_a, memory[1], batch.target))
        return -self.weight * mean_over_scored(mass, batch)


def log_mass(log_a: Tensor, words: Tensor, target: Tensor) -> Tensor:
    """``log Σ_{i: x_i = target} a_i``, ``(T, N)``; very low, but finite, where there is none."""
    same = words.squeeze(-1).t() == target.unsqueeze(-1)
    return log_a.masked_fill(~same, lowest(log_a)).logsumexp(-1)


def lowest(like: Tensor) -> float:
    """A finite logarithm of zero, whose gradient is zero and not nan."""
    return torch.finfo(like.dtype).min / 4
