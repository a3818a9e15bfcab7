"""Estimates from K noise samples: the objective, the marginal likelihood, ensembles."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from noisin._util import arguments, checks, states
from noisin.errors import InvalidValue
from noisin.likelihoods import Likelihood
from noisin.likelihoods.base import require_likelihood
from noisin.recurrent import samples
from noisin.recurrent.injection import noise_on

Model = Callable[..., tuple[Tensor, Any]]


@dataclass(frozen=True)
class Window:
    """A window: inputs ``(T, N, ...)``, targets ``(T, N, ...)`` and the state to start from.

    The state has N rows, or the K·N rows returned by the estimate of the previous window. It is a
    tensor or a nested tuple of tensors, in the layout of torch's RNNs and cells.
    """

    x: Tensor
    target: Tensor
    state: Any = None

    def __post_init__(self) -> None:
        checks.require_tensors("objective.Window", x=self.x, target=self.target)


@dataclass(frozen=True)
class Estimate:
    """K-sample estimates over one window, in nats, summed over its rows and steps.

    Attributes:
        log_p: ``log p(x_{1:T} | z^{(k)}_{1:T})`` per sample and row, ``(K, N)``, differentiable.
        state: the carried state of all K·N rows, for the next window.
    """

    log_p: Tensor
    state: Any

    @property
    def bound(self) -> Tensor:
        """The Monte Carlo objective: the mean over noise of the log likelihood."""
        return self.log_p.mean(0).sum()

    @property
    def bound_stderr(self) -> Tensor:
        """The standard error of :attr:`bound` over the noise; nan for K = 1."""
        return _relative_stderr(self.log_p, torch.ones_like(self.log_p[0]))

    @property
    def marginal(self) -> Tensor:
        """``Σ_n log (1/K) Σ_k p(x_{1:T} | z^{(k)})``: never below the bound, and tighter with K."""
        return _log_mean_exp(self.log_p).sum()

    @property
    def marginal_stderr(self) -> Tensor:
        """The standard error of :attr:`marginal`, by the delta method.

        It is nan if a row has fewer than 20 effective samples: a few large likelihoods then
        dominate the sum, the estimate is far too low, and the samples do not show its error.
        """
        if self.effective_samples.min() < 20:
            return self.log_p.new_tensor(math.nan)
        weights = (self.log_p - self.log_p.amax(0)).exp()
        return _relative_stderr(weights, weights.mean(0))

    @property
    def effective_samples(self) -> Tensor:
        """``(Σ p)² / Σ p²`` per row, between 1 and K: the effective number of samples."""
        weights = (self.log_p.detach() - self.log_p.detach().amax(0)).exp()
        return weights.sum(0).square() / weights.square().sum(0)


def estimate(
    model: Model,
    batch: Window,
    K: int = 1,
    likelihood: Likelihood | None = None,
    *,
    batch_first: bool | None = None,
) -> Estimate:
    """Estimate the objective and the marginal likelihood of a window from K noise samples.

    The noise is on in both ``train()`` and ``eval()`` mode; everything else follows the mode.

    Args:
        model: ``model(x, state) -> (s, state)``.
        batch: the window.
        K: the number of noise samples.
        likelihood: the likelihood of the targets; by default ``model.likelihood``.
        batch_first: whether the model and the window have the batch first, ``(N, T, ...)``. By
            default it is ``model.batch_first``, or False. A model without that attribute that
            contains an RNN with ``batch_first=True`` may or may not transpose, so it must be given.

    >>> import noisin
    >>> from noisin import likelihoods, noise
    >>> rnn = noisin.RNN(1, 1, noise=noise.Gaussian(0.5))
    >>> batch = Window(torch.ones(5, 2, 1), torch.zeros(5, 2, 1))
    >>> e = estimate(rnn, batch, K=1000, likelihood=likelihoods.Gaussian())
    >>> bool(e.bound < e.marginal)
    True
    """
    if not isinstance(batch, Window):
        raise InvalidValue(
            f"estimate: expected an objective.Window(x, target, state), got {type(batch).__name__}."
        )
    rows = _rows_first(model, batch_first)
    T, N = _window(batch.x)[::-1] if rows else _window(batch.x)
    s, state = _noisy_samples(model, batch.x, batch.state, K, rows)
    target = _fold(_time_first(batch.target, rows), N, K)
    nll = likelihood_of(model, likelihood).nll(s=s, x=target)
    log_p = -nll.reshape(T, K, N, -1).sum((0, 3))
    return Estimate(log_p, state)


@dataclass(frozen=True)
class Ensemble:
    """The predictions of K noise samples, ``s``: ``(K, T, N, ...)``, and two ways to mix them.

    Both give the log density of x at each step, ``(T, N)``; with the batch first, ``(N, T)``.
    """

    s: Tensor
    likelihood: Likelihood
    state: Any

    def __post_init__(self) -> None:
        checks.require_real("objective.Ensemble", s=self.s)
        require_likelihood("objective.Ensemble", self.likelihood)
        if self.s.dim() < 3 or len(self.s) == 0:
            raise InvalidValue(
                f"objective.Ensemble: expected s of shape (K, T, N, ...) with K > 0, got "
                f"{tuple(self.s.shape)}."
            )

    def arithmetic(self, x: Tensor) -> Tensor:
        """``log (1/K) Σ_k p(x | s_k)``: the mixture of the predictions."""
        checks.require_tensors("objective.Ensemble", x=x)
        K = len(self.s)
        nll = self.likelihood.nll(s=self.s, x=x.unsqueeze(0).expand(K, *x.shape))
        return _log_mean_exp(-nll.flatten(3).sum(-1) if nll.dim() > 3 else -nll)

    def geometric(self, x: Tensor) -> Tensor:
        """``log p(x | mean s_k)``: the normalised geometric mean of the predictions.

        Exponential families are closed under it. In strong mode the mean of s is that of the clean
        RNN, so with many samples this equals the prediction of the clean RNN.
        """
        nll = self.likelihood.nll(s=self.s.mean(0), x=x)
        return -nll.flatten(2).sum(-1) if nll.dim() > 2 else -nll

    def log_normaliser(self) -> Tensor:
        """``A(mean s_k) - mean A(s_k)``, never positive: minus the explicit regularizer."""
        A = self.likelihood.A
        gap = A(self.s.mean(0)) - A(self.s).mean(0)
        return gap.flatten(2).sum(-1) if gap.dim() > 2 else gap


def predict(
    model: Model,
    x: Tensor,
    K: int,
    state: Any = None,
    likelihood: Likelihood | None = None,
    *,
    batch_first: bool | None = None,
) -> Ensemble:
    """Return the predictions of K noise samples; ``batch_first`` is as in :func:`estimate`."""
    rows = _rows_first(model, batch_first)
    s, state = _noisy_samples(model, x, state, K, rows)
    samples = s.reshape(len(s), K, -1, *s.shape[2:]).transpose(0, 1)
    samples = samples.transpose(1, 2) if rows else samples
    return Ensemble(samples, likelihood_of(model, likelihood), state)


def _noisy_samples(
    model: Model, x: Tensor, state: Any, K: int, rows_first: bool
) -> tuple[Tensor, Any]:
    """``s``, ``(T, K · N, ...)``, and the state: row n of sample k is row k·N + n."""
    arguments.whole("objective: K", K, what=samples.NOISE_SAMPLES)
    checks.require_model("objective", model)
    _window(x)
    dim = 0 if rows_first else 1
    T, N = x.shape[1 - dim], x.shape[dim]
    with noise_on(model) if isinstance(model, nn.Module) else nullcontext():
        if K > 1 and samples.rows_share(model):
            found = samples.passes(
                cast(nn.Module, model),
                _checked_state(state, N, K),
                *(N, K),
                lambda own: checks.model_output("objective", model(x, own)),
            )
            output: Any = samples.side_by_side(found, N, dim)
        elif K > 1 and samples.offered(model):
            output = model(x, _checked_state(state, N, K), samples=K)
        else:
            output = model(_fold(x, N, K, dim), _fold_state(state, N, K))
    s, state = checks.model_output("objective", output)
    sizes = (K * N, T) if rows_first else (T, K * N)
    if s.shape[:2] != sizes:
        layout = "(N, T, ...), batch first" if rows_first else "(T, N, ...), time first"
        raise InvalidValue(
            f"objective: expected the model to return s of shape {layout}, with T = {T} steps and "
            f"N = {K * N} rows (K · N), got {tuple(s.shape)}. A model is "
            f"model(x, state) -> (s, state)."
        )
    return _time_first(s, rows_first), state


def _rows_first(model: Model, batch_first: bool | None) -> bool:
    """Whether a model takes ``(N, T, ...)``: as given, as it says itself, or else not.

    An RNN inside it with its batch first leaves that open, because the model may transpose, and
    a wrong guess would put the K copies along time.
    """
    if batch_first is None:
        batch_first = getattr(model, "batch_first", None)
    if batch_first is not None:
        checks.one_of("objective: batch_first", batch_first, (True, False))
        return batch_first
    for name, module in model.named_modules() if isinstance(model, nn.Module) else ():
        if getattr(module, "batch_first", False):
            raise InvalidValue(
                f"objective: {type(model).__name__} contains {name!r}, a {type(module).__name__} "
                f"with batch_first=True, so it is not known which dimension of its input is the "
                f"batch. Pass batch_first=True if the model takes (N, T, ...), or "
                f"batch_first=False if it takes (T, N, ...) and transposes."
            )
    return False


def _time_first(value: Tensor, rows_first: bool) -> Tensor:
    if not rows_first:
        return value
    checks.require_tensors("objective", target=value)
    if value.dim() < 2:
        raise InvalidValue(
            f"objective: expected a tensor (N, T, ...) with the batch first, got "
            f"{tuple(value.shape)}."
        )
    return value.transpose(0, 1)


def _window(x: Tensor) -> tuple[int, int]:
    checks.require_tensors("objective", x=x)
    if x.dim() < 2:
        raise InvalidValue(f"objective: expected x of shape (T, N, ...), got {tuple(x.shape)}.")
    return x.shape[0], x.shape[1]


def _fold_state(state: Any, N: int, K: int) -> Any:
    """Repeat the rows of a state K times, unless it has K·N rows already."""
    return states.map(lambda part: _fold(part, N, K, max(part.dim() - 2, 0)), state)


def _checked_state(state: Any, N: int, K: int) -> Any:
    """A state of N or K·N rows."""
    return states.map(lambda part: _checked(part, N, K, max(part.dim() - 2, 0)), state)


def _checked(value: Tensor, N: int, K: int, dim: int) -> Tensor:
    if value.dim() <= dim or value.shape[dim] not in (N, K * N):
        raise InvalidValue(
            f"objective: expected N = {N} rows, or K · N = {K * N} carried rows, in dimension "
            f"{dim}, got {tuple(value.shape)}."
        )
    return value


def _fold(value: Tensor, N: int, K: int, dim: int = 1) -> Tensor:
    """Repeat all rows K times: row n of copy k is row k·N + n."""
    if _checked(value, N, K, dim).shape[dim] == K * N:
        return value
    shape = (*value.shape[:dim], K, *value.shape[dim:])
    return value.unsqueeze(dim).expand(shape).flatten(dim, dim + 1)


def likelihood_of(model: Model, likelihood: Likelihood | None) -> Likelihood:
    """The given likelihood, or that of the model."""
    found = getattr(model, "likelihood", None) if likelihood is None else likelihood
    if not isinstance(found, Likelihood):
        raise InvalidValue(
            f"objective: expected a likelihood, got {found!r:.60}. Pass likelihood=..., or "
            f"set {type(model).__name__}.likelihood."
        )
    return found


def _log_mean_exp(values: Tensor) -> Tensor:
    return values.logsumexp(0) - math.log(len(values))


def _relative_stderr(samples: Tensor, scale: Tensor) -> Tensor:
    """The standard error of ``Σ_n mean_k samples / scale``, for independent rows."""
    K = len(samples)
    if K == 1:
        return samples.new_tensor(math.nan)
    return ((samples.var(0) / scale.square()).sum() / K).sqrt()
