r"""Likelihoods: the exponential families of the paper's Table 1, as complete densities.

``p(x | s) = nu(x) exp(s·T(x) - A(s))`` with the natural parameter ``s = z @ V``. The log-normaliser
``A`` carries the moments, ``∇A(s) = E[T(x)]`` and ``∇²A(s) = Var[T(x)]``, and its Hessian is what
the explicit regularizer of noise injection is made of.

====================  ============  ================  ==========  ============================
likelihood            A(s)          ∇²A(s)            T(x)        log nu(x)
====================  ============  ================  ==========  ============================
``Bernoulli()``       log(1 + eˢ)   p (1 - p)         x           0
``Gaussian(σ²)``      s² / (2σ²)    1 / σ²            x / σ²      -x²/(2σ²) - log(2πσ²)/2
``Poisson()``         eˢ            eˢ                x           -log x!
``Categorical()``     logsumexp(s)  diag(p) - p pᵀ    one-hot(x)  0
====================  ============  ================  ==========  ============================

Two rows need a word. In the Gaussian one ``s`` is the *mean* of x, as in the paper, so that 1/σ² is
part of T. The paper's categorical row reads ``A = logsumexp(η)`` with ``η = exp(s)``, a slip: the
Hessian it gives is that of ``logsumexp(s) = log 1ᵀη``, which is ours.

A likelihood of one's own states A, T, mean and sample, and log_nu unless nu is one. Test it with
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
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from noisin import checks
from noisin.errors import InvalidType, InvalidValue

# torch.poisson counts in int64 and returns negative counts, silently, beyond its range.
LARGEST_RATE = 2.0**62
# The variances for which float32 holds both σ² and 1/σ² with room to spare.
VARIANCES = (1e-30, 1e30)


class Likelihood(ABC):
    """An exponential family. The paper's letters name its parts; ``nll`` is what training needs.

    ``event_dim`` is 1 if the last dimension of s describes one observation together, as for the
    categorical, and 0 if every entry of s has an observation of its own.
    """

    event_dim: ClassVar[int] = 0

    @abstractmethod
    def A(self, s: Tensor) -> Tensor:
        """The log-normaliser, one value per observation."""

    @abstractmethod
    def T(self, x: Tensor, like: Tensor) -> Tensor:
        """The sufficient statistic, in the shape and dtype of the natural parameter ``like``."""

    @abstractmethod
    def mean(self, s: Tensor) -> Tensor:
        """``E[x]``, in the shape of s (of a categorical x, the mean of its one-hot)."""

    @abstractmethod
    def sample(self, s: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw one x per observation, independently. No gradient flows through it."""

    def log_nu(self, x: Tensor) -> Tensor:
        """The log of the base measure, in x's dtype (the default one where x is integer)."""
        return torch.zeros_like(x, dtype=_float_dtype(x))

    def nll(self, s: Tensor, x: Tensor) -> Tensor:
        """``-log p(x | s) = A(s) - s·T(x) - log nu(x)``, one value per observation.

        The terms cancel where s is large, so each likelihood below has a stable form of its own.
        Those compute in float32 at least, and return that for a half-precision s.
        """
        product = s * self.T(x, like=s)
        return self.A(s) - (product.sum(-1) if self.event_dim else product) - self.log_nu(x)

    def hessian(self, s: Tensor) -> Callable[[Tensor], Tensor]:
        """The operator ``v ↦ ∇²A(s) v`` for v of the shape of s; its matrix is never formed."""
        gradient = torch.func.grad(lambda s: self.A(s).sum())
        product = torch.func.vjp(gradient, s)[1]  # the Hessian is symmetric: vᵀH = Hv
        return lambda v: product(v)[0]


class _Checked(Likelihood):
    """A likelihood that looks at x before it believes it."""

    support: ClassVar[str]
    advice: ClassVar[str]

    @abstractmethod
    def _supports(self, x: Tensor, s: Tensor) -> Tensor:
        """Where x is a value that the likelihood can produce."""

    def _check(self, s: Tensor, x: Tensor) -> None:
        name = f"likelihoods.{type(self).__name__}"
        checks.require_tensors(name, s=s, x=x)
        if not s.is_floating_point():
            raise InvalidType(
                f"{name}: the natural parameter s must be a floating-point tensor, got {s.dtype}. "
                "Convert it, e.g. s.float()."
            )
        if x.shape != s.shape[: s.dim() - self.event_dim] or s.dim() < self.event_dim:
            raise InvalidValue(
                f"{name}: x has shape {tuple(x.shape)} and s has shape {tuple(s.shape)}; expected "
                + ("s.shape == (*x.shape, O)" if self.event_dim else "equal shapes")
                + ", one x for each law that s describes. Reshape or expand x."
            )
        if checks.values_known(x) and not (ok := self._supports(x, s)).all():
            raise InvalidValue(
                f"{name}: x must be {self.support}, got {x[~ok][0].item()} with s of shape "
                f"{tuple(s.shape)}. {self.advice}"
            )

    def T(self, x: Tensor, like: Tensor) -> Tensor:
        """``x``, unless the likelihood says otherwise."""
        self._check(like, x)
        return x.to(like.dtype)


@final
@dataclass(frozen=True)
class Bernoulli(_Checked):
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
        return -F.logsigmoid(-s)  # F.softplus is cut off at 20, and float64 can tell

    def mean(self, s: Tensor) -> Tensor:
        """``p = 1 / (1 + exp(-s))``."""
        return s.sigmoid()

    def hessian(self, s: Tensor) -> Callable[[Tensor], Tensor]:
        """``v ↦ p (1 - p) v``."""
        variance = s.sigmoid() * (-s).sigmoid()
        return lambda v: variance * v

    def nll(self, s: Tensor, x: Tensor) -> Tensor:
        """``log(1 + exp(∓s))``, so that a small nll keeps its digits."""
        self._check(s, x)
        s = _wide(s)
        return -F.logsigmoid((2 * x.to(s.dtype) - 1) * s)

    def sample(self, s: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw zeros and ones, in the dtype of s."""
        return torch.bernoulli(_wide(s.detach()).sigmoid(), generator=generator).to(s.dtype)


@final
@dataclass(frozen=True)
class Gaussian(_Checked):
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
        return s.square() / (2 * self.variance)

    def T(self, x: Tensor, like: Tensor) -> Tensor:
        """``x / σ²``."""
        return super().T(x, like) / self.variance

    def log_nu(self, x: Tensor) -> Tensor:
        """``-x² / (2σ²) - log(2πσ²) / 2``."""
        return -x.to(_float_dtype(x)).square() / (2 * self.variance) - self._log_scale

    @property
    def _log_scale(self) -> float:
        return 0.5 * math.log(2 * math.pi * self.variance)

    def mean(self, s: Tensor) -> Tensor:
        """``s``."""
        return s

    def hessian(self, s: Tensor) -> Callable[[Tensor], Tensor]:  # noqa: ARG002
        """``v ↦ v / σ²``."""
        return lambda v: v / self.variance

    def nll(self, s: Tensor, x: Tensor) -> Tensor:
        """``(x - s)² / (2σ²) + log(2πσ²) / 2``."""
        self._check(s, x)
        s = _wide(s)
        return (x.to(s.dtype) - s).square() / (2 * self.variance) + self._log_scale

    def sample(self, s: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw real numbers, in the dtype of s."""
        noise = torch.randn(s.shape, dtype=s.dtype, device=s.device, generator=generator)
        return s.detach() + math.sqrt(self.variance) * noise


@final
@dataclass(frozen=True)
class Poisson(_Checked):
    """Counts: ``x ~ Poisson(exp(s))``.

    Where exp(s) exceeds the range of the dtype (s > 88.7 in float32, 709.7 in float64), the nll and
    its gradient are +inf, as they round to, and never nan. A mask that multiplies such an entry by
    zero does make nan: leave entries out by selecting the others, ``s[keep]``.

    >>> Poisson().nll(s=torch.tensor([0.0, 2.0, 100.0]), x=torch.tensor([0, 7, 7]))
    tensor([1.0000, 1.9142,    inf])
    """

    support = "a whole number, 0 or more"
    advice = "For real-valued data use likelihoods.Gaussian."

    def _supports(self, x: Tensor, s: Tensor) -> Tensor:  # noqa: ARG002
        return (x >= 0) & (x == x.long())

    def A(self, s: Tensor) -> Tensor:
        """``exp(s)``."""
        return s.exp()

    def log_nu(self, x: Tensor) -> Tensor:
        """``-log x!``."""
        return -torch.lgamma(x.to(_float_dtype(x)) + 1)

    def mean(self, s: Tensor) -> Tensor:
        """``exp(s)``."""
        return s.exp()

    def hessian(self, s: Tensor) -> Callable[[Tensor], Tensor]:
        """``v ↦ exp(s) v``."""
        variance = s.exp()
        return lambda v: variance * v

    def nll(self, s: Tensor, x: Tensor) -> Tensor:
        """``exp(s) - s x + log x!``."""
        self._check(s, x)
        result = _wide(s).dtype
        # Near s = log x the three terms, each of the size of x log x, all but cancel.
        exact = torch.float32 if s.device.type == "mps" else torch.float64
        s, x = s.to(exact), x.to(exact)
        product = torch.where(x == 0, 0.0, s * x)  # 0, not nan, where s is -inf
        return (s.exp() - product - self.log_nu(x)).to(result)

    def sample(self, s: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw counts, in the dtype of s."""
        rate = _wide(s.detach()).exp()
        if checks.values_known(rate) and not (rate <= LARGEST_RATE).all():
            raise InvalidValue(
                f"likelihoods.Poisson: cannot draw counts at the rate exp(s) = {rate.max():.3g}, "
                f"expected at most {LARGEST_RATE:.3g} (s below 43). Check the scale of s."
            )
        return torch.poisson(rate, generator=generator).to(s.dtype)


@final
@dataclass(frozen=True)
class Categorical(_Checked):
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
        if isinstance(x, Tensor) and (x.is_floating_point() or x.dtype == torch.bool):
            raise InvalidType(
                f"likelihoods.Categorical: x must hold integer class numbers, got {x.dtype}. "
                "Convert one-hot or probability targets with x.argmax(-1)."
            )
        super()._check(s, x)

    def A(self, s: Tensor) -> Tensor:
        """``log Σ_j exp(s_j)``."""
        return s.logsumexp(-1)

    def T(self, x: Tensor, like: Tensor) -> Tensor:
        """The one-hot of x among the outputs of ``like``."""
        self._check(like, x)
        return F.one_hot(x.long(), like.shape[-1]).to(like.dtype)

    def mean(self, s: Tensor) -> Tensor:
        """``p = softmax(s)``, the mean of the one-hot."""
        return s.softmax(-1)

    def hessian(self, s: Tensor) -> Callable[[Tensor], Tensor]:
        """``v ↦ p (v - pᵀv)``, which is ``(diag(p) - p pᵀ) v``."""
        p = s.softmax(-1)
        return lambda v: p * (v - (p * v).sum(-1, keepdim=True))

    def nll(self, s: Tensor, x: Tensor) -> Tensor:
        """``logsumexp(s) - s_x``, by torch's fused kernel: language models live on its speed."""
        self._check(s, x)
        rows = _wide(s).reshape(-1, s.shape[-1])
        # No class number may mean "ignore": where values cannot be checked, -100 is an error too.
        ignore = torch.iinfo(torch.int64).min
        nll = F.cross_entropy(rows, x.long().reshape(-1), reduction="none", ignore_index=ignore)
        return nll.reshape(x.shape)

    def sample(self, s: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw class numbers, int64."""
        p = _wide(s.detach()).softmax(-1).reshape(-1, s.shape[-1])
        return torch.multinomial(p, 1, generator=generator).reshape(s.shape[:-1])


LIKELIHOODS: Mapping[str, type[Likelihood]] = {
    "bernoulli": Bernoulli,
    "gaussian": Gaussian,
    "poisson": Poisson,
    "categorical": Categorical,
}


def _wide(s: Tensor) -> Tensor:
    """In float32 at least: half precision would leave a likelihood two or three digits."""
    return s.to(torch.promote_types(s.dtype, torch.float32))


def _float_dtype(x: Tensor) -> torch.dtype:
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()


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
            f"[{low:g}, {high:g}], got {value:g}. Scale the data so that σ² is near 1."
        )
    return float(value)
