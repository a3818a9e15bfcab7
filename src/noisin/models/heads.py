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
from noisin.likelihoods.scaled import LocationScale, require_scaled
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
        self.likelihood = likelihood
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias: Tensor = nn.Parameter(_checked_bias("Dense", bias, out_features))
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


class LearntScale(nn.Module):
    """A head for a likelihood with a learnt scale: P parameters for each target, linear in z.

    ``s = z @ V + bias``; initially the scales are near 1. It has no temperature.

    Args:
        in_features: the size of z.
        out_features: the number O of targets per step.
        likelihood: such as ``likelihoods.ScaledGaussian()``.
        bias: the initial locations, ``(out_features,)``; zeros by default.
        generator: the random stream of the initialisation.

    >>> from noisin.likelihoods import StudentT
    >>> head = LearntScale(4, 7, StudentT())
    >>> head.predict(torch.zeros(5, 2, 4)).shape
    torch.Size([5, 2, 21])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        likelihood: LocationScale,
        bias: Tensor | None = None,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        arguments.whole("LearntScale: in_features", in_features)
        arguments.whole("LearntScale: out_features", out_features)
        require_scaled("LearntScale", likelihood)
        checks.require_generator("LearntScale", generator)
        location = _checked_bias("LearntScale", bias, out_features)
        others = [location.new_full((out_features,), value) for value in likelihood.start]
        self.likelihood = likelihood
        self.weight = nn.Parameter(torch.empty(likelihood.parameters * out_features, in_features))
        self.bias = nn.Parameter(torch.cat([location, *others]))
        self.reset_parameters(generator)

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Initialise the weights uniformly on ±1/√H; the bias keeps its value."""
        bound = self.weight.shape[1] ** -0.5
        with torch.no_grad():
            self.weight.uniform_(-bound, bound, generator=generator)

    def predict(self, z: Tensor, memory: State = None) -> Tensor:
        """The parameters of all targets, ``(..., P·O)``."""
        return nn.functional.linear(z, self.weight, self.bias)

    def nll(self, z: Tensor, batch: Batch, memory: State = None) -> tuple[Tensor, State]:
        """``-log p`` of each target, summed over its O values."""
        return self.likelihood.nll(self.predict(z), batch.target).sum(-1), None

    def mean_nll(self, z: Tensor, batch: Batch, memory: State = None) -> tuple[Tensor, State]:
        """The mean over the scored targets."""
        return mean_over_scored(self.nll(z, batch)[0], batch), None

    def extra_repr(self) -> str:
        """Sizes and likelihood."""
        sizes = f"{self.weight.shape[1]}, {self.weight.shape[0] // self.likelihood.parameters}"
        return f"{sizes}, likelihood={type(self.likelihood).__name__}"


def _checked_bias(where: str, bias: Tensor | None, size: int) -> Tensor:
    """The initial bias as a new tensor; zeros by default."""
    if bias is None:
        return torch.zeros(size)
    checks.require_real(where, bias=bias)
    if bias.shape != (size,):
        raise InvalidValue(f"{where}: expected a bias of shape ({size},), got {tuple(bias.shape)}.")
    return bias.to(torch.get_default_dtype(), copy=True)
