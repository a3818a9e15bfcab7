r"""The explicit regularizer: what unbiased noise adds to the loss.

In strong mode the risk of the noise-injected RNN is that of the RNN plus

.. math:: Reg = \sum_t E[A(V^\top z_t) - A(V^\top h_t)] \ge 0.

To second order in the noise, whose variance is v, it is

.. math:: \tfrac12 v \sum_t \sum_j w_{tj} (V \nabla^2 A(V^\top h_t) V^\top)_{jj},

with :math:`w = h^2` for multiplicative noise and 1 for additive. The paper writes an equality; it
is one for a Gaussian likelihood only.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from noisin._util import arguments, checks, torch_state
from noisin.errors import InvalidValue
from noisin.likelihoods import Categorical, Likelihood, Poisson
from noisin.likelihoods.base import require_likelihood
from noisin.noise import Biased, Noise
from noisin.noise.base import require_noise
from noisin.recurrent.functional import Mode, inject

ENTRIES = 2**20  # of the natural parameters that are computed at once


@dataclass(frozen=True)
class Regularizer:
    """The explicit regularizer of one batch, summed over rows and steps, in nats."""

    closed_form: Tensor
    monte_carlo: Tensor
    stderr: Tensor


def explicit_regularizer(
    likelihood: Likelihood,
    V: Tensor,
    h: Tensor,
    noise: Noise,
    mode: Mode = "multiplicative",
    K: int = 64,
    bias: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Regularizer:
    """The closed form, and a Monte Carlo estimate of the exact value with its standard error.

    Args:
        likelihood: the likelihood of the observations, with ``s = h @ V + bias``.
        V: prediction matrix, ``(H, O)``.
        h: clean states, ``(..., H)``.
        noise: the noise on h, not fed back.
        mode: ``"multiplicative"`` or ``"additive"``.
        K: noise samples of the Monte Carlo estimate, each over all of h.
        bias: ``(O,)``.
        generator: the random stream of the estimate.

    >>> from noisin import likelihoods, noise
    >>> h, V = torch.ones(1, 2), torch.tensor([[1.0], [2.0]])
    >>> reg = explicit_regularizer(likelihoods.Gaussian(), V, h, noise.Gaussian(0.1), K=1000)
    >>> reg.closed_form                        # exact: ½ · 0.01 · (1² + 2²)
    tensor(0.0250)
    >>> bool((reg.monte_carlo - 0.025).abs() < 6 * reg.stderr)
    True
    """
    arguments.whole("explicit_regularizer: K", K, what="a whole number of noise samples")
    checks.require_generator("explicit_regularizer", generator)
    closed = Penalty(likelihood, noise, mode)(h, V, bias).sum()
    if isinstance(likelihood, Poisson):
        _warn_if_infinite(V, h, noise, mode)
    samples = _bregman_samples(likelihood, V, h, noise, mode, K, bias, generator)
    stderr = samples.std() / math.sqrt(K) if K > 1 else samples.new_tensor(math.nan)
    return Regularizer(closed, samples.mean(), stderr)


@dataclass(frozen=True)
class Penalty:
    """The closed form as a training loss: NOISIN without sampling.

    Called as ``penalty(h, V)`` on the clean states it gives one value per row and step, to be added
    to the nll of the clean RNN; it is differentiable in h, V and bias.

    >>> from noisin import likelihoods, noise
    >>> penalty = Penalty(likelihoods.Categorical(), noise.Gaussian(0.5))
    >>> penalty(torch.ones(1, 2), torch.eye(2))
    tensor([0.0625])
    """

    likelihood: Likelihood
    noise: Noise
    mode: Mode = "multiplicative"
    chunk_size: int = 1024

    def __post_init__(self) -> None:
        checks.one_of("Penalty: mode", self.mode, ("multiplicative", "additive"))
        require_likelihood("Penalty", self.likelihood)
        if isinstance(require_noise(self.noise), Biased):
            raise InvalidValue("Penalty: the closed form is that of unbiased noise, got Biased.")
        arguments.whole("Penalty: chunk_size", self.chunk_size, what="a whole number of outputs")

    def __call__(self, h: Tensor, V: Tensor, bias: Tensor | None = None) -> Tensor:
        """``½ v Σ_j w_j (V ∇²A Vᵀ)_jj`` per row and step."""
        curvature = output_curvature(self.likelihood, V, h, bias, self.chunk_size)
        weighted = curvature * h.square() if self.mode == "multiplicative" else curvature
        return 0.5 * self.noise.variance * weighted.sum(-1)


def output_curvature(
    likelihood: Likelihood,
    V: Tensor,
    h: Tensor,
    bias: Tensor | None = None,
    chunk_size: int = 1024,
) -> Tensor:
    """``(V ∇²A(s) Vᵀ)_jj`` at ``s = h @ V + bias`` for each unit j: of the shape of h.

    Over the outputs in chunks, so that neither s nor any matrix of outputs × outputs is ever held
    whole, whether or not gradients are wanted. Any other likelihood with joint outputs is served by
    its Hessian operator, unit by unit.
    """
    checks.require_real("analysis", h=h, V=V, **({} if bias is None else {"bias": bias}))
    if V.dim() != 2 or h.shape[-1:] != V.shape[:1] or h.numel() == 0 or V.numel() == 0:
        raise InvalidValue(
            f"analysis: expected h (..., H) and V (H, O), got {tuple(h.shape)} and "
            f"{tuple(V.shape)}. For an nn.Linear, pass weight.t() as V."
        )
    if bias is not None and bias.shape != V.shape[1:]:
        raise InvalidValue(
            f"analysis: expected a bias of shape {tuple(V.shape[1:])}, got {tuple(bias.shape)}."
        )
    checks.require_one_kind("analysis", h=h, V=V, bias=bias)
    rows = h.reshape(-1, h.shape[-1])
    if isinstance(likelihood, Categorical):
        curvature = _categorical_curvature(V, rows, bias, chunk_size)
    elif likelihood.event_dim == 0:
        curvature = _elementwise_curvature(likelihood, V, rows, bias, chunk_size)
    else:
        curvature = curvature_by_operator(likelihood, V, rows, bias)
    return curvature.reshape(h.shape)


def curvature_by_operator(
    likelihood: Likelihood, V: Tensor, h: Tensor, bias: Tensor | None = None
) -> Tensor:
    """The same for any likelihood, one application of its Hessian per unit."""
    s = _natural_parameter(h, V, bias)
    hessian = likelihood.hessian(s)
    return torch.stack([(hessian(v.expand_as(s)) * v).sum(-1) for v in V], dim=-1)


def _elementwise_curvature(
    likelihood: Likelihood, V: Tensor, h: Tensor, bias: Tensor | None, chunk_size: int
) -> Tensor:
    def part(h: Tensor, V: Tensor, bias: Tensor | None) -> Tensor:
        s = _natural_parameter(h, V, bias)
        return likelihood.hessian(s)(torch.ones_like(s)) @ V.square().t()

    return sum_of(checkpointed(part, h, *chunk) for chunk in _chunks(V, bias, chunk_size))


def _categorical_curvature(V: Tensor, h: Tensor, bias: Tensor | None, chunk_size: int) -> Tensor:
    """``E_p[V_j²] - E_p[V_j]²``: the variance of a row of V under the predicted law."""
    # A shift does not change the variance; without the mean fewer digits cancel.
    centre = V.detach().mean(1, keepdim=True)

    def log_sum(h: Tensor, V: Tensor, bias: Tensor | None) -> Tensor:
        return _natural_parameter(h, V, bias).logsumexp(-1, keepdim=True)

    def moments(h: Tensor, log_total: Tensor, V: Tensor, bias: Tensor | None) -> Tensor:
        p = (_natural_parameter(h, V, bias) - log_total).exp()
        centred = V - centre
        return torch.stack([p @ centred.t(), p @ centred.square().t()])

    chunks = list(_chunks(V, bias, chunk_size))
    parts = torch.cat([checkpointed(log_sum, h, *chunk) for chunk in chunks], dim=-1)
    log_total = parts.logsumexp(-1, keepdim=True)
    first, second = sum_of(checkpointed(moments, h, log_total, *chunk) for chunk in chunks)
    variance: Tensor = (second - first.square()).clamp_min(0)  # rounding can make it negative
    return variance


def _bregman_samples(
    likelihood: Likelihood,
    V: Tensor,
    h: Tensor,
    noise: Noise,
    mode: Mode,
    K: int,
    bias: Tensor | None,
    generator: torch.Generator | None,
) -> Tensor:
    """K samples of ``Σ A(s_z) - A(s_h) - (s_z - s_h)·∇A(s_h)``, not negative term by term.

    The last term has mean zero, and removes most of the variance where the noise is small. As many
    samples are drawn at once as have ``ENTRIES`` natural parameters.
    """
    h, V = h.detach().double(), V.detach().double()
    bias = None if bias is None else bias.detach().double()
    gap = bregman(likelihood, _natural_parameter(h, V, bias))
    at_once = max(1, ENTRIES // (h.numel() // h.shape[-1] * V.shape[1]))
    samples = []
    for start in range(0, K, at_once):
        shape = (min(at_once, K - start), *h.shape)
        z = inject(h, noise.sample(shape, like=h, generator=generator), mode)
        samples.append(gap(_natural_parameter(z, V, bias)).reshape(len(z), -1).sum(1))
    return torch.cat(samples)


def bregman(likelihood: Likelihood, s_h: Tensor) -> Callable[[Tensor], Tensor]:
    """``s_z -> A(s_z) - A(s_h) - (s_z - s_h)·∇A(s_h)``, which is ``KL(p_h || p_z)``.

    In float64 and observation by observation, because the terms almost cancel where noise is small.
    """
    with torch.inference_mode(False), torch.enable_grad():
        s_h = s_h.detach().clone().double().requires_grad_()
        A_h = likelihood.A(s_h)
        (slope,) = torch.autograd.grad(A_h.sum(), s_h)
    A_h, s_h = A_h.detach(), s_h.detach()

    def gap(s_z: Tensor) -> Tensor:
        with torch.no_grad():
            s_z = s_z.double()
            linear = (s_z - s_h) * slope
            return likelihood.A(s_z) - A_h - (linear.sum(-1) if likelihood.event_dim else linear)

    return gap


def _warn_if_infinite(V: Tensor, h: Tensor, noise: Noise, mode: Mode) -> None:
    """Warn about a Poisson A, which is exponential: its mean is infinite under heavy tails."""
    low, high = getattr(noise, "exponential_moments", (-math.inf, math.inf))
    if math.isinf(low) and math.isinf(high):
        return
    rows = h.detach().reshape(-1, h.shape[-1])
    weights = (
        torch.stack([rows.amin(0), rows.amax(0)]) if mode == "multiplicative" else V.new_ones(1)
    )
    ends = torch.stack([V.detach().amin(1), V.detach().amax(1)])
    factors = weights.unsqueeze(1) * ends.unsqueeze(0)
    if 2 * factors.max() < high and 2 * factors.min() > low:
        return
    if factors.max() < high and factors.min() > low:
        warnings.warn(
            f"explicit_regularizer: with a Poisson likelihood and {noise}, the exact regularizer "
            f"is finite, but the variance of its estimate is not: its error is meaningless. "
            f"Use less noise, or one with lighter tails, such as Gaussian.",
            stacklevel=3,
        )
    else:
        what = "h_j V_jo" if mode == "multiplicative" else "V_jo"
        warnings.warn(
            f"explicit_regularizer: with a Poisson likelihood and {noise}, the exact regularizer "
            f"is infinite: {what} reaches [{factors.min():.3g}, {factors.max():.3g}], but "
            f"E[exp(t eps)] is finite for t in ({low:.3g}, {high:.3g}) only. The estimate is "
            f"meaningless; use less noise, or one with lighter tails, such as Gaussian.",
            stacklevel=3,
        )


def _natural_parameter(h: Tensor, V: Tensor, bias: Tensor | None) -> Tensor:
    return h @ V if bias is None else h @ V + bias


def _chunks(
    V: Tensor, bias: Tensor | None, chunk_size: int
) -> Iterator[tuple[Tensor, Tensor | None]]:
    for start in range(0, V.shape[1], chunk_size):
        part = slice(start, start + chunk_size)
        yield V[:, part], None if bias is None else bias[part]


def checkpointed(function: Callable[..., Tensor], *args: Tensor | None) -> Tensor:
    """Call a function, and recompute its intermediate values in the backward pass."""
    if not torch.is_grad_enabled() or torch_state.transforming():  # torch.func cannot recompute
        return function(*args)
    result: Tensor = checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)
    return result


def sum_of(parts: Iterator[Tensor]) -> Tensor:
    """The sum of an iterable of tensors, of which only one exists at a time."""
    total = next(parts)
    for part in parts:
        total = total + part
    return total
