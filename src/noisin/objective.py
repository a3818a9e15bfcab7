r"""The objective of NOISIN and what it bounds, for any noise-injected model.

A model is ``model(x, state) -> (s, state)``: from inputs ``(T, N, ...)`` to the natural parameters
s of a likelihood, ``(T, N, O)`` or ``(T, N)``, carrying a state. With noise, the likelihood that it
gives to a row of targets is random, ``log p(x_{1:T} | z_{1:T})``, and

- the **objective** (Jensen bound) is its mean over the noise, which training maximises;
- the **marginal** ``log p(x_{1:T})``, the log of the mean likelihood, is what it bounds.

K noise samples are K times as many rows of the batch, with their own states. A model whose methods
take ``samples``, as noisin's do, is given N rows and K, and computes once what the samples have in
common: see :mod:`noisin.recurrent.samples`. Other models are given K·N rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from noisin._util import arguments, checks, states, torch_state
from noisin.errors import InvalidType, InvalidValue
from noisin.likelihoods import Likelihood
from noisin.likelihoods.base import require_likelihood
from noisin.noise.family import Family
from noisin.recurrent import samples
from noisin.recurrent.cells import NoisyCell, hidden, with_hidden
from noisin.recurrent.functional import Mode
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
    model: Model, batch: Window, K: int = 1, likelihood: Likelihood | None = None
) -> Estimate:
    """Estimate the objective and the marginal likelihood of a window from K noise samples.

    The noise is on in both ``train()`` and ``eval()`` mode; everything else follows the mode.

    Args:
        model: ``model(x, state) -> (s, state)``.
        batch: the window.
        K: the number of noise samples.
        likelihood: the likelihood of the targets; by default ``model.likelihood``.

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
    T, N = _window(batch.x)
    s, state = _noisy_samples(model, batch.x, batch.state, K)
    target = _fold(batch.target, N, K)
    nll = likelihood_of(model, likelihood).nll(s=s, x=target)
    log_p = -nll.reshape(T, K, N, -1).sum((0, 3))
    return Estimate(log_p, state)


@dataclass(frozen=True)
class Ensemble:
    """The predictions of K noise samples, ``s``: ``(K, T, N, ...)``, and two ways to mix them.

    Both give the log density of x at each step, ``(T, N)``.
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
    model: Model, x: Tensor, K: int, state: Any = None, likelihood: Likelihood | None = None
) -> Ensemble:
    """Return the predictions of K noise samples."""
    _, N = _window(x)
    s, state = _noisy_samples(model, x, state, K)
    samples = s.reshape(len(s), K, N, *s.shape[2:]).transpose(0, 1)
    return Ensemble(samples, likelihood_of(model, likelihood), state)


def transition_log_density(z: Tensor, f: Tensor, noise: Family, mode: Mode) -> Tensor:
    """``log p(z_t | z_{t-1}, x_{t-1})``, where ``f = f_W(x_{t-1}, z_{t-1})``; summed over units.

    Additive noise with density phi gives ``Π phi(z - f)``, multiplicative ``Π phi(z/f - 1)/|f|``.
    Multiplicative noise does not change an f of 0, such as a ReLU's: z is then 0 with certainty and
    has no density, which raises an error.

    >>> from noisin.noise import Gaussian
    >>> transition_log_density(torch.tensor([1.0]), torch.tensor([1.0]), Gaussian(1.0), "additive")
    tensor(-0.9189)
    """
    checks.one_of("transition_log_density: mode", mode, ("multiplicative", "additive"))
    _check_transition(z, f, noise)
    if mode == "additive":
        return noise.log_prob(z - f).sum(-1)
    if torch_state.values_known(f) and (f == 0).any():
        units = (f == 0).reshape(-1, f.shape[-1]).any(0).nonzero().flatten().tolist()
        shown = ", ".join(map(str, units[:5])) + (", ..." if len(units) > 5 else "")
        raise InvalidValue(
            f"transition_log_density: f is 0 at {int((f == 0).sum())} of {f.numel()} entries "
            f"(units {shown}), where multiplicative noise gives z = 0 with certainty, and a point "
            f"mass has no density. Use mode='additive', or an activation that is never 0, such as "
            f"sigmoid."
        )
    return (noise.log_prob(z / f - 1) - f.abs().log()).sum(-1)


def _check_transition(z: Tensor, f: Tensor, noise: Family) -> None:
    where = "transition_log_density"
    checks.require_real(where, z=z, f=f)
    checks.require_one_device(where, z=z, f=f)
    if z.shape != f.shape or z.dim() == 0:
        raise InvalidValue(
            f"{where}: expected z and f of one shape (..., H), got {tuple(z.shape)} and "
            f"{tuple(f.shape)}."
        )
    _require_density(where, noise)


def _require_density(where: str, noise: object) -> None:
    if not isinstance(noise, Family):
        raise InvalidValue(
            f"{where}: expected a noise with a density, got {noise!r:.60}. Use one of "
            f"noise.FAMILIES."
        )


def log_joint(
    cell: NoisyCell, V: Callable[[Tensor], Tensor], x: Tensor, target: Tensor, z: Tensor,
    likelihood: Likelihood,
) -> Tensor:  # fmt: skip
    """``log p(x_{1:T}, z_{1:T})`` of the empirical-Bayes view, one value per row, ``(N,)``.

    The noisy states z, ``(T, N, H)``, are latent variables with the prior
    ``p(z_t | z_{t-1}, x_{t-1}; W)`` that the noise and the cell define, and V maps a state to the
    natural parameter of its observation. Training fits the prior's W: with the prior itself as q,
    the objective is an ELBO.
    """
    arguments.instance(
        "log_joint: cell", cell, NoisyCell, "Wrap your own cell: noisin.Noisy(cell, noise)."
    )
    checks.require_tensors("log_joint", x=x, target=target)
    checks.require_real("log_joint", z=z)
    require_likelihood("log_joint", likelihood)
    if not callable(V) or isinstance(V, type) or not checks.takes(V, 1):
        raise InvalidType(
            f"log_joint: V must map a state to a natural parameter, got {type(V).__name__}. Pass a "
            f"function or a module, such as torch.nn.Linear(H, O)."
        )
    law = cell.noise
    _require_density("log_joint", law)
    assert isinstance(law, Family)
    if not cell.feedback or cell.share != "step":
        raise InvalidValue(
            "log_joint: z must be what the recurrence reads, with fresh noise at each step. Use "
            "feedback=True and share='step'."
        )
    if (
        min(x.dim(), target.dim()) < 2
        or z.dim() != 3
        or not (x.shape[:2] == target.shape[:2] == z.shape[:2])
    ):
        raise InvalidValue(
            f"log_joint: expected the same steps and rows (T, N, ...) in x, target and z, got "
            f"{tuple(x.shape)}, {tuple(target.shape)} and {tuple(z.shape)}."
        )
    total, state = z.new_zeros(z.shape[1]), None
    for t in range(len(x)):
        clean = cell.transition(x[t], state)
        h = hidden(cell, clean)
        checks.require_one_kind("log_joint", z=z, h=h)
        if z[t].shape != h.shape:
            raise InvalidValue(
                f"log_joint: expected z of shape {(len(x), *h.shape)}, as the cell's h, got "
                f"{tuple(z.shape)}."
            )
        nll = likelihood.nll(s=V(z[t]), x=target[t])
        prior = transition_log_density(z[t], h, law, cell.noise_mode)
        total = total + prior - nll.reshape(len(nll), -1).sum(-1)
        state = with_hidden(cell, clean, z[t])
    return total


def _noisy_samples(model: Model, x: Tensor, state: Any, K: int) -> tuple[Tensor, Any]:
    """``s`` and the state of K noise samples of every row: row n of sample k is row k·N + n."""
    arguments.whole("objective: K", K, what=samples.NOISE_SAMPLES)
    checks.require_model("objective", model)
    _, N = _window(x)
    if getattr(model, "batch_first", False):
        raise InvalidValue(
            "objective: expected a model that takes time first, (T, N, ...), but this one has "
            "batch_first=True. Wrap it in a module that transposes."
        )
    with noise_on(model) if isinstance(model, nn.Module) else nullcontext():
        if K > 1 and samples.offered(model):
            output = model(x, _checked_state(state, N, K), samples=K)
        else:
            output = model(_fold(x, N, K), _fold_state(state, N, K))
    s, state = checks.model_output("objective", output)
    if s.shape[:2] != (len(x), K * N):
        raise InvalidValue(
            f"objective: expected the model to return s of shape (T, N, ...) with T = {len(x)} "
            f"steps and N = {K * N} rows (K · N), got {tuple(s.shape)}. A model is "
            f"model(x, state) -> (s, state), time first."
        )
    return s, state


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
