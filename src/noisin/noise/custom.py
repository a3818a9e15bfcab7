"""Custom noise: from a torch distribution, or a class that a trial draw checks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor
from torch.distributions import Distribution

from noisin.errors import InvalidType, InvalidValue, NoisinError
from noisin.noise.base import Noise, described, draws

_PROBES = 2**18
# By the central limit theorem no centred noise of ordinary tails strays so far.
_MOST_STANDARD_ERRORS = 6
# Heavy tails blur a sample's variance, but not beyond this factor.
_VARIANCE_FACTOR = 4


@dataclass(frozen=True)
class Centred:
    """The noise ``eps = eta - E[eta]`` with eta drawn from a torch distribution."""

    distribution: Distribution

    def __post_init__(self) -> None:
        d = self.distribution
        if not isinstance(d, Distribution):
            raise InvalidType(
                f"noise.from_distribution: expected a torch.distributions.Distribution, got "
                f"{described(d)}. For a custom law, write a class with variance and sample."
            )
        if d.batch_shape or d.event_shape:
            raise InvalidValue(
                f"noise.from_distribution: noise is drawn independently per unit from one scalar "
                f"law, got {d} with batch shape {tuple(d.batch_shape)} and event shape "
                f"{tuple(d.event_shape)}. Pass scalar parameters."
            )
        if not (math.isfinite(self._moment("mean")) and math.isfinite(self._moment("variance"))):
            raise InvalidValue(
                f"noise.from_distribution: unbiased noise needs a finite mean and variance, got "
                f"mean {self._moment('mean'):g} and variance {self._moment('variance'):g} of {d}. "
                f"Choose parameters for which both exist."
            )

    def _moment(self, name: str) -> float:
        try:
            moment = getattr(self.distribution, name)
            if moment.is_meta:
                raise InvalidValue(
                    "noise.from_distribution: the parameters are on the meta device and have no "
                    "values. Make the noise outside of torch.device('meta')."
                )
            return float(moment)
        except NotImplementedError:
            raise InvalidValue(
                f"noise.from_distribution: {self.distribution} does not define its {name}, which "
                f"centring needs. Write a class with variance and sample instead."
            ) from None

    @property
    def variance(self) -> float:
        """``Var(eta)``."""
        return self._moment("variance")

    @property
    def std(self) -> float:
        """The standard deviation of eta."""
        return math.sqrt(self.variance)

    def sample(
        self, shape: Sequence[int], *, like: Tensor, generator: Generator | None = None
    ) -> Tensor:
        """Draw ``eta - E[eta]`` of this shape, in the dtype and on the device of ``like``."""
        shape = draws("noise.from_distribution", shape, like, generator)
        with torch.no_grad(), _drawing_from(generator):
            eta = self.distribution.sample(torch.Size(shape))
        eps = eta - self._moment("mean")
        limit = min(torch.finfo(like.dtype).max, torch.finfo(eps.dtype).max)
        return eps.clamp(-limit, limit).to(like)


def from_distribution(distribution: Distribution) -> Centred:
    """Centre any scalar torch distribution with finite mean and variance.

    >>> noise = from_distribution(torch.distributions.Uniform(0.0, 6.0))
    >>> noise.variance
    3.0
    """
    return Centred(distribution)


@contextmanager
def _drawing_from(generator: Generator | None) -> Iterator[None]:
    """Let the global stream of the generator's device continue ``generator`` inside the context.

    Torch's distributions take no generator. The global stream is restored afterwards.
    """
    if generator is None:
        yield
        return
    stream: Any = torch if generator.device.type == "cpu" else torch.cuda
    before = stream.get_rng_state()
    stream.set_rng_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(stream.get_rng_state())
        stream.set_rng_state(before)


def probe(noise: Noise) -> None:
    """Raise unless a trial draw of a user's noise has the right form and mean zero.

    The draw uses a separate generator, and the global stream is restored in case the noise ignores
    it.
    """
    name = type(noise).__name__
    variance = noise.variance
    if not (isinstance(variance, float | int) and 0 <= variance < math.inf):
        raise InvalidValue(
            f"{name}: variance must be a finite number, not negative, got {variance!r}. "
            f"Return Var(eps) as a float."
        )
    _trial_draw(noise, (2, 3, 4), torch.float32)
    eps = _trial_draw(noise, (_PROBES,), torch.float64)
    mean, stderr = eps.mean().item(), math.sqrt(variance / _PROBES)
    if abs(mean) > _MOST_STANDARD_ERRORS * stderr + 1e-9:
        raise InvalidValue(
            f"{name}: noise must be centred, but {_PROBES} draws have mean {mean:.4g} where its "
            f"variance of {variance:.4g} allows 0 ± {stderr:.2g}. Subtract the mean: the mode adds "
            f"it, as h + eps or h * (1 + eps)."
        )
    found = eps.square().mean().item()
    if not variance / _VARIANCE_FACTOR <= found <= variance * _VARIANCE_FACTOR:
        raise InvalidValue(
            f"{name}: its variance is stated as {variance:.4g}, but {_PROBES} draws have "
            f"{found:.4g}. Return Var(eps), the mean of eps²."
        )


def _trial_draw(noise: Noise, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    name = type(noise).__name__
    like = torch.empty((), dtype=dtype, device="cpu")
    generator = torch.Generator(device="cpu").manual_seed(0)
    try:
        with torch.random.fork_rng(devices=[]):
            eps = noise.sample(shape, like=like, generator=generator)
    except TypeError as error:
        raise InvalidType(
            f"{name}.sample: expected sample(self, shape, *, like, generator=None), but calling it "
            f"so failed: {error}."
        ) from error
    except NoisinError:
        raise
    except Exception as error:  # code of the user's may raise any
        raise InvalidValue(
            f"{name}.sample: drawing {shape} failed: {type(error).__name__}: {error}."
        ) from error
    if not isinstance(eps, Tensor) or eps.shape != shape or eps.dtype != dtype:
        given = f"{tuple(eps.shape)} of {eps.dtype}" if isinstance(eps, Tensor) else described(eps)
        raise InvalidValue(
            f"{name}.sample: asked for shape {shape} like a tensor of {dtype}, got {given}. "
            f"Draw `shape` entries in like.dtype on like.device."
        )
    if not eps.isfinite().all():
        raise InvalidValue(f"{name}.sample: drew infinity or NaN. Noise must be finite.")
    return eps
