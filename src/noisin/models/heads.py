"""Heads: map the hidden state z to a prediction of the target."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from noisin._util import arguments, checks
from noisin.data.batch import Batch
from noisin.errors import InvalidValue
from noisin.likelihoods import Categorical, Likelihood
from noisin.likelihoods.base import require_likelihood
from noisin.likelihoods.linear import linear_nll
from noisin.models.base import State, mean_over_scored


class _LinearPrediction:
    """The exponential family of the paper with natural parameters ``s = z @ V + bias``."""

    V: Tensor
    bias: Tensor
    likelihood: Likelihood

    def predict(self, z: Tensor, memory: State = None) -> Tensor:
        """Natural parameters, ``(..., O)``."""
        return z @ self.V + self.bias

    def nll(self, z: Tensor, batch: Batch, memory: State = None) -> tuple[Tensor, State]:
        """``-log p`` of each target. For words, the natural parameters are computed in chunks."""
        if isinstance(self.likelihood, Categorical):
            return linear_nll(z, self.V, batch.target, self.bias), None
        nll = self.likelihood.nll(s=self.predict(z), x=batch.target)
        return nll.flatten(2).sum(-1) if nll.dim() > 2 else nll, None

    def mean_nll(self, z: Tensor, batch: Batch, memory: State = None) -> tuple[Tensor, State]:
        """The mean over the scored targets; for words, with its gradient in one pass."""
        if isinstance(self.likelihood, Categorical) and batch.scored is None:
            return linear_nll(z, self.V, batch.target, self.bias, reduction="mean"), None
        return mean_over_scored(self.nll(z, batch)[0], batch), None

    def tempered(self, temperature: float) -> Linear:
        """The same prediction with all natural parameters divided by ``temperature``."""
        return Linear(self.V / temperature, self.bias / temperature, self.likelihood)


@dataclass(frozen=True)
class Linear(_LinearPrediction):
    """A linear head with given tensors; V can be the transpose of an embedding.

    >>> head = Linear(torch.eye(3), torch.zeros(3), Categorical())
    >>> head.nll(torch.zeros(1, 1, 3), Batch(torch.zeros(1, 1), torch.tensor([[0]])))[0]
    tensor([[1.0986]])
    """

    V: Tensor
    bias: Tensor
    likelihood: Likelihood


class Dense(_LinearPrediction, nn.Module):
    """A linear head with its own parameters.

    Args:
        in_features: the size of z.
        out_features: the number of natural parameters per target.
        likelihood: the likelihood of the targets.
        bias: the initial bias, ``(out_features,)``; zeros by default.
        generator: the random stream of the initialisation.

    >>> from noisin.likelihoods import Bernoulli
    >>> head = Dense(4, 88, Bernoulli())
    >>> head.predict(torch.zeros(5, 2, 4)).shape
    torch.Size([5, 2, 88])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        likelihood: Likelihood,
        bias: Tensor | None = None,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        arguments.whole("Dense: in_features", in_features)
        arguments.whole("Dense: out_features", out_features)
        require_likelihood("Dense", likelihood)
        checks.require_generator("Dense", generator)
        if bias is not None:
            checks.require_real("Dense", bias=bias)
        if bias is not None and bias.shape != (out_features,):
            raise InvalidValue(
                f"Dense: expected a bias of shape ({out_features},), got {tuple(bias.shape)}."
            )
        self.likelihood = likelihood
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias: Tensor = nn.Parameter(
            torch.zeros(out_features)
            if bias is None
            else bias.to(torch.get_default_dtype(), copy=True)
        )
        self.reset_parameters(generator)

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Initialise the weights uniformly on ±1/√H; the bias keeps its value."""
        bound = self.weight.shape[1] ** -0.5
        with torch.no_grad():
            self.weight.uniform_(-bound, bound, generator=generator)

    @property
    def V(self) -> Tensor:  # type: ignore[override]  # noqa: N802 - the paper's letter
        """The prediction matrix, ``(H, out_features)``."""
        return self.weight.t()

    def extra_repr(self) -> str:
        """Sizes and likelihood."""
        sizes = f"{self.weight.shape[1]}, {self.weight.shape[0]}"
        return f"{sizes}, likelihood={type(self.likelihood).__name__}"
