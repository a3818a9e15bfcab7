r"""The base class of likelihoods: what an exponential family defines, and what is checked."""
# ruff: noqa: N802 - A and T are the paper's letters

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Generator, Tensor

from noisin._util import checks, torch_state
from noisin.errors import InvalidType, InvalidValue


class Likelihood(ABC):
    """An exponential family, in the paper's notation; training needs only ``nll``.

    ``event_dim`` is 1 if the last dimension of s describes one observation together, as for the
    categorical, and 0 if every entry of s describes one observation.
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
        """Draw one x per observation, independently, without gradient."""

    def log_nu(self, x: Tensor) -> Tensor:
        """The log of the base measure, in x's dtype (the default dtype if x is integer)."""
        checks.require_numbers(self._name, x=x)
        return torch.zeros_like(x, dtype=float_dtype(x))

    def nll(self, s: Tensor, x: Tensor) -> Tensor:
        """``-log p(x | s) = A(s) - s·T(x) - log nu(x)``, one value per observation.

        The terms cancel where s is large, so each class of noisin.likelihoods has a stable form.
        These compute in at least float32, and return float32 for a half-precision s.
        """
        checks.require_real(self._name, s=s)
        checks.require_numbers(self._name, x=x)
        T = self.T(x, like=s)
        if not isinstance(T, Tensor) or T.shape != s.shape:
            got = tuple(T.shape) if isinstance(T, Tensor) else type(T).__name__
            raise InvalidValue(
                f"{self._name}: expected T(x) in the shape {tuple(s.shape)} of s, got {got} for x "
                f"of shape {tuple(x.shape)}. Reshape or expand x."
            )
        checks.require_one_device(self._name, s=s, x=x)
        product = s * T
        return self.A(s) - (product.sum(-1) if self.event_dim else product) - self.log_nu(x)

    def hessian(self, s: Tensor) -> Callable[[Tensor], Tensor]:
        """The operator ``v ↦ ∇²A(s) v`` for v of the shape of s; its matrix is never formed."""
        checks.require_real(self._name, s=s)
        gradient = torch.func.grad(lambda s: self.A(s).sum())
        product = torch.func.vjp(gradient, s)[1]  # the Hessian is symmetric: vᵀH = Hv
        return self._operator(s, lambda v: product(v)[0])

    def _operator(
        self, s: Tensor, product: Callable[[Tensor], Tensor]
    ) -> Callable[[Tensor], Tensor]:
        """``product`` with a check of its argument."""

        def checked(v: Tensor) -> Tensor:
            checks.require_real(self._name, v=v)
            if not _broadcasts(v.shape, s.shape):
                raise InvalidValue(
                    f"{self._name}: the Hessian at s of shape {tuple(s.shape)} applies to v of "
                    f"that shape, got {tuple(v.shape)}."
                )
            checks.require_one_kind(self._name, s=s, v=v)
            return product(v.expand(s.shape))

        return checked

    @property
    def _name(self) -> str:
        return type(self).__name__


class Checked(Likelihood):
    """A likelihood that checks x."""

    support: ClassVar[str]
    advice: ClassVar[str]

    @property
    def _name(self) -> str:
        return f"likelihoods.{type(self).__name__}"

    @abstractmethod
    def _supports(self, x: Tensor, s: Tensor) -> Tensor:
        """Where x is a value that the likelihood can produce."""

    def _check(self, s: Tensor, x: Tensor) -> None:
        name = self._name
        checks.require_tensors(name, s=s, x=x)
        checks.require_real(name, s=s)
        checks.require_numbers(name, x=x)
        if x.shape != s.shape[: s.dim() - self.event_dim] or s.dim() < self.event_dim:
            raise InvalidValue(
                f"{name}: x has shape {tuple(x.shape)} and s has shape {tuple(s.shape)}; expected "
                + ("s.shape == (*x.shape, O)" if self.event_dim else "equal shapes")
                + ", one x for each distribution that s describes. Reshape or expand x."
            )
        checks.require_one_device(name, s=s, x=x)
        if torch_state.values_known(x) and not (ok := self._supports(x, s)).all():
            raise InvalidValue(
                f"{name}: x must be {self.support}, got {x[~ok][0].item()} with s of shape "
                f"{tuple(s.shape)}. {self.advice}"
            )

    def _check_draw(self, s: Tensor, generator: Generator | None) -> None:
        checks.require_real(self._name, s=s)
        checks.require_generator(self._name, generator, s.device)

    def T(self, x: Tensor, like: Tensor) -> Tensor:
        """``x``, unless the likelihood defines another statistic."""
        self._check(like, x)
        return x.to(like.dtype)


def require_likelihood(where: str, likelihood: object) -> None:
    """Raise unless ``likelihood`` is a likelihood."""
    if not isinstance(likelihood, Likelihood):
        raise InvalidType(
            f"{where}: expected a likelihood, got {likelihood!r:.60}. Pass an instance, such as "
            f"likelihoods.Categorical()."
        )


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Whether a tensor of one shape can be expanded to another."""
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(n in (1, m) for n, m in pairs)


def wide(s: Tensor) -> Tensor:
    """Convert to at least float32: half precision has only two or three digits."""
    return s.to(torch.promote_types(s.dtype, torch.float32))


def float_dtype(x: Tensor) -> torch.dtype:
    """The dtype of functions of x: that of x, or the default dtype if x is integer."""
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()
