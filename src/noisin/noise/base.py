"""The protocol of a noise, and the checks that every noise shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Generator, Tensor, nn
from torch.distributions import Distribution

from noisin._util import checks
from noisin.errors import InvalidType


@runtime_checkable
class Noise(Protocol):
    """Centred noise, as an injection needs it: any object with these two members."""

    @property
    def variance(self) -> float:
        """``Var(eps)`` of one entry."""
        ...

    def sample(
        self, shape: Sequence[int], *, like: Tensor, generator: Generator | None = None
    ) -> Tensor:
        """Draw independent ``eps`` of this shape, in the dtype and on the device of ``like``."""
        ...


def draws(
    name: str, shape: Sequence[int], like: Tensor, generator: Generator | None
) -> tuple[int, ...]:
    """Return the shape of draws as a tuple, or raise if they cannot be drawn."""
    if not isinstance(like, Tensor) or like.dtype not in checks.FLOATS:
        what = f"a tensor of {like.dtype}" if isinstance(like, Tensor) else f"{like!r:.60}"
        raise InvalidType(
            f"{name}: noise is real-valued and cannot be drawn like {what}. "
            f"Pass a floating-point tensor as `like`."
        )
    checks.require_generator(name, generator, like.device)
    return checks.sizes(name, shape)


def described(value: object) -> str:
    """A value in a few words, for a message."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    shown = repr(value)
    return shown if len(shown) < 80 else f"{shown[:77]}..."


def require_noise(value: object) -> Noise:
    """Return ``value`` if it looks like a noise, else raise with advice on what to pass."""
    if isinstance(value, Noise) and not isinstance(value, type | Distribution | nn.Module):
        return value
    if isinstance(value, type):
        advice = f"Pass an instance, such as {value.__name__}(...)."
    elif isinstance(value, Distribution):
        advice = "Centre it with noise.from_distribution."
    elif isinstance(value, str):
        advice = "Pass an instance, such as noise.FAMILIES['gaussian'](gamma=0.5)."
    elif isinstance(value, nn.Module):
        advice = "A module would become part of the RNN's state_dict. Use a frozen dataclass."
    else:
        advice = "Pass, for example, noise.Gaussian(gamma=0.5), or None for no noise."
    raise InvalidType(
        f"noise: expected an object with `variance` and `sample`, got {described(value)}. {advice}"
    )
