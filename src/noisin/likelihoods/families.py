r"""Likelihoods: the exponential families of the paper's Table 1, as complete densities.

``p(x | s) = nu(x) exp(s·T(x) - A(s))`` with the natural parameter ``s = z @ V``. The log-normaliser
``A`` gives the moments, ``∇A(s) = E[T(x)]`` and ``∇²A(s) = Var[T(x)]``. Its Hessian appears in the
explicit regularizer of noise injection.

====================  ============  ================  ==========  ============================
likelihood            A(s)          ∇²A(s)            T(x)        log nu(x)
====================  ============  ================  ==========  ============================
``Bernoulli()``       log(1 + eˢ)   p (1 - p)         x           0
``Gaussian(σ²)``      s² / (2σ²)    1 / σ²            x / σ²      -x²/(2σ²) - log(2πσ²)/2
``Poisson()``         eˢ            eˢ                x           -log x!
``Categorical()``     logsumexp(s)  diag(p) - p pᵀ    one-hot(x)  0
====================  ============  ================  ==========  ============================

Two rows need an explanation. In the Gaussian row ``s`` is the *mean* of x, as in the paper, so that
1/σ² is part of T. The paper's categorical row reads ``A = logsumexp(η)`` with ``η = exp(s)``, which
is a misprint: the Hessian in it is that of ``logsumexp(s) = log 1ᵀη``, which is used here.

A custom likelihood defines A, T, mean and sample, and log_nu unless nu is 1. Test it with
``noisin.testing.LikelihoodContract``. A spin, ``x = ±1``:

>>> class Spin(Likelihood):
...     def A(self, s):
...         return torch.logaddexp(s, -s)
...     def T(self, x, like):
...         return x.to(like.dtype)
...     def mean(self, s):
...         return s.tanh()
...     def sample(self, s, generator=None):
...         return 2 * torch.bernoulli(torch.sigmoid(2 * s), generator=generator) - 1
>>> Spin().nll(s=torch.tensor([0.0, 1.0]), x=torch.tensor([1.0, -1.0]))
tensor([0.6931, 2.1269])
"""
# ruff: noqa: N802 - A and T are the paper's letters

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from noisin._util import checks, torch_state
from noisin.errors import InvalidType, InvalidValue
from noisin.likelihoods.base import Checked, float_dtype, wide
from noisin.likelihoods.base import Likelihood as Likelihood

# torch.poisson counts in int64 and silently returns negative counts beyond its range.
LARGEST_RATE = 2.0**62
# The variances for which float32 represents both σ² and 1/σ² with room to spare.
VARIANCES = (1e-30, 1e30)


@final
@dataclass(frozen=True)
class Bernoulli(Checked):
    """Binary data: ``p(x = 1 | s) = 1 / (1 + exp(-s))``.

    >>> Bernoulli().nll(s=torch.tensor([0.0, 50.0]), x=torch.tensor([1, 1]))
    tensor([6.9315e-01, 1.9287e-22])
    """

    support = "0 or 1"
    advice = "Threshold it first, e.g. x > 0.5."

    def _supports(self, x: Tensor, s: Tensor) -> Tensor:  # noqa: ARG002
        return (x == 0) | (x == 1)

    def A(self, s: Tensor) -> Tensor:
        """``log(1 + exp(s))``."""
        checks.require_real(self._name, s=s)
        return -F.logsigmoid(-s)  # F.softplus is cut off at 20, which shows in float64

    def mean(self, s: Tensor) -> Tensor:
        """``p = 1 / (1 + exp(-s))``."""
        checks.require_real(self._name, s=s)
        return s.sigmoid()

    def hessian(self, s: Tensor) -> Callable[[Tensor], Tensor]:
        """``v ↦ p (1 - p) v``."""
        checks.require_real(self._name, s=s)
        variance = s.sigmoid() * (-s).sigmoid()
        return self._operator(s, lambda v: variance * v)

    def nll(self, s: Tensor, x: Tensor) -> Tensor:
        """``log(1 + exp(∓s))``, so that a small nll keeps its digits."""
        self._check(s, x)
        s = wide(s)
        return -F.logsigmoid((2 * x.to(s.dtype) - 1) * s)

    def sample(self, s: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw zeros and ones, in the dtype of s."""
        self._check_draw(s, generator)
        return torch.bernoulli(wide(s.detach()).sigmoid(), generator=generator).to(s.dtype)


@final
@dataclass(frozen=True)
class Gaussian(Checked):
    """Real-valued data: ``x ~ N(s, variance)``. The natural parameter is the mean.

    >>> Gaussian(variance=4.0).nll(s=torch.tensor([0.0, 1.0]), x=torch.tensor([0.0, 3.0]))
    tensor([1.6121, 2.1121])
    """

    variance: float = 1.0

    support = "finite"
    advice = "Leave out or fill in missing values first."

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", _checked_variance(self.variance))

    def _supports(self, x: Tensor, s: Tensor) -> Tensor:  # noqa: ARG002
        return x.isfinite()

    def A(self, s: Tensor) -> Tensor:
        """``s² / (2σ²)``."""
        checks.require_real(self._name, s=s)
        return s.square() / (2 * self.variance)

    def T(self, x: Tensor, like: Tensor) -> Tensor:
        """``x / σ²``."""
        return super().T(x, like) / self.variance

    def log_nu(self, x: Tensor) -> Tensor:
        """``-x² / (2σ²) - log(2πσ²) / 2``."""
        checks.require_numbers(self._name, x=x)
        return -x.to(float_dtype(x)).square() / (2 * self.variance) - self._log_scale

    @property
    def _log_scale(self) -> float:
        return 0.5 * math.log(2 * math.pi * self.variance)

    def mean(self, s: Tensor) -> Tensor:
        """``s``."""
        checks.require_real(self._name, s=s)
        return s

    def hessian(self, s: Tensor) -> Callable[[Tensor], Tensor]:
        """``v ↦ v / σ²``."""
        checks.require_real(self._name, s=s)
        return self._operator(s, lambda v: v / self.variance)

    def nll(self, s: Tensor, x: Tensor) -> Tensor:
        """``(x - s)² / (2σ²) + log(2πσ²) / 2``."""
        self._check(s, x)
        s = wide(s)
        return (x.to(s.dtype) - s).square() / (2 * self.variance) + self._log_scale

    def sample(self, s: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw real numbers, in the dtype of s."""
        self._check_draw(s, generator)
        noise = torch.randn(s.shape, dtype=s.dtype, device=s.device, generator=generator)
        return s.detach() + math.sqrt(self.variance) * noise


@final
@dataclass(frozen=True)
class Poisson(Checked):
    """Counts: ``x ~ Poisson(exp(s))``.

    Where exp(s) exceeds the range of the dtype (s > 88.7 in float32, 709.7 in float64), the nll and
    its gradient are +inf, which they round to, never nan. A mask that multiplies such an entry by
    zero gives nan: to leave entries out, select the others, ``s[keep]``.

    >>> Poisson().nll(s=torch.tensor([0.0, 2.0, 100.0]), x=torch.tensor([0, 7, 7]))
    tensor([1.0000, 1.9142,    inf])
    """

    support = "a whole number, 0 or more"
    advice = "For real-valued data use likelihoods.Gaussian."

    def _supports(self, x: Tensor, s: Tensor) -> Tensor:  # noqa: ARG002
        return (x >= 0) & (x == x.long())

    def A(self, s: Tensor) -> Tensor:
        """``exp(s)``."""
        checks.require_real(self._name, s=s)
        return s.exp()

    def log_nu(self, x: Tensor) -> Tensor:
        """``-log x!``."""
        checks.require_numbers(self._name, x=x)
        return -torch.lgamma(x.to(float_dtype(x)) + 1)

    def mean(self, s: Tensor) -> Tensor:
        """``exp(s)``."""
        checks.require_real(self._name, s=s)
        return s.exp()

    def hessian(self, s: Tensor) -> Callable[[Tensor], Tensor]:
        """``v ↦ exp(s) v``."""
        checks.require_real(self._name, s=s)
        variance = s.exp()
        return self._operator(s, lambda v: variance * v)

    def nll(self, s: Tensor, x: Tensor) -> Tensor:
        """``exp(s) - s x + log x!``."""
        self._check(s, x)
        result = wide(s).dtype
        # Near s = log x the three terms, each of the size of x log x, almost cancel.
        exact = torch.float32 if s.device.type == "mps" else torch.float64
        s, x = s.to(exact), x.to(exact)
        product = torch.where(x == 0, 0.0, s * x)  # 0, not nan, where s is -inf
        return (s.exp() - product - self.log_nu(x)).to(result)

    def sample(self, s: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw counts, in the dtype of s."""
        self._check_draw(s, generator)
        rate = wide(s.detach()).exp()
        if torch_state.values_known(rate) and not (rate <= LARGEST_RATE).all():
            raise InvalidValue(
                f"likelihoods.Poisson: cannot draw counts at the rate exp(s) = {rate.max():.3g}, "
                f"expected at most {LARGEST_RATE:.3g} (s below 43). Check the scale of s."
            )
        return torch.poisson(rate, generator=generator).to(s.dtype)


@final
@dataclass(frozen=True)
class Categorical(Checked):
    """One of O classes, by number: ``p(x | s) = exp(s_x) / Σ_j exp(s_j)``.

    The last dimension of s is the O outputs, and ``x.shape == s.shape[:-1]``.

    >>> s = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    >>> Categorical().nll(s=s, x=torch.tensor([0, 2]))
    tensor([0.2395, 1.0986])
    """

    event_dim = 1
    support = "one of the classes 0 ... O - 1"
    advice = "To leave entries out, select the others: nll(s[keep], x[keep])."

    def _supports(self, x: Tensor, s: Tensor) -> Tensor:
        return (x >= 0) & (x < s.shape[-1])

    def _check(self, s: Tensor, x: Tensor) -> None:
        if isinstance(x, Tensor) and x.dtype not in checks.INTEGERS:
            raise InvalidType(
                f"likelihoods.Categorical: x must contain integer class numbers, got {x.dtype}. "
                "Convert one-hot or probability targets with x.argmax(-1)."
            )
        super()._check(s, x)

    def _check_outputs(self, s: Tensor) -> None:
        checks.require_real(self._name, s=s)
        if s.dim() == 0 or s.shape[-1] == 0:
            raise InvalidValue(
                f"{self._name}: the last dimension of s is the O outputs, 1 or more, got s of "
                f"shape {tuple(s.shape)}."
            )

    def A(self, s: Tensor) -> Tensor:
        """``log Σ_j exp(s_j)``."""
        self._check_outputs(s)
        return s.logsumexp(-1)

    def T(self, x: Tensor, like: Tensor) -> Tensor:
        """The one-hot of x among the outputs of ``like``."""
        self._check(like, x)
        return F.one_hot(x.long(), like.shape[-1]).to(like.dtype)

    def mean(self, s: Tensor) -> Tensor:
        """``p = softmax(s)``, the mean of the one-hot."""
        self._check_outputs(s)
        return s.softmax(-1)

    def hessian(self, s: Tensor) -> Callable[[Tensor], Tensor]:
        """``v ↦ p (v - pᵀv)``, which is ``(diag(p) - p pᵀ) v``."""
        self._check_outputs(s)
        p = s.softmax(-1)
        return self._operator(s, lambda v: p * (v - (p * v).sum(-1, keepdim=True)))

    def nll(self, s: Tensor, x: Tensor) -> Tensor:
        """``logsumexp(s) - s_x``, by torch's fused kernel, for speed."""
        self._check(s, x)
        rows = wide(s).reshape(-1, s.shape[-1])
        # No class number means "ignore": -100 is an error even where values cannot be checked.
        ignore = torch.iinfo(torch.int64).min
        nll = F.cross_entropy(rows, x.long().reshape(-1), reduction="none", ignore_index=ignore)
        return nll.reshape(x.shape)

    def sample(self, s: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw class numbers, int64."""
        self._check_draw(s, generator)
        self._check_outputs(s)
        p = wide(s.detach()).softmax(-1).reshape(-1, s.shape[-1])
        return torch.multinomial(p, 1, generator=generator).reshape(s.shape[:-1])


LIKELIHOODS: Mapping[str, type[Likelihood]] = {
    "bernoulli": Bernoulli,
    "gaussian": Gaussian,
    "poisson": Poisson,
    "categorical": Categorical,
}


def _checked_variance(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidType(
            f"likelihoods.Gaussian: variance must be a number, got {value!r} "
            f"({type(value).__name__}). Pass a float, e.g. Gaussian(variance=1.0)."
        )
    low, high = VARIANCES
    if not low <= value <= high:
        raise InvalidValue(
            f"likelihoods.Gaussian: variance is σ² of the observations and must lie in "
            f"[{low:g}, {high:g}], got {value!r:.60}. Scale the data so that σ² is near 1."
        )
    return float(value)
