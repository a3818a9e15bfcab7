"""Randomness inside a module: from which stream, and for which part of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Generator, Tensor, nn

from noisin._util import torch_state
from noisin.errors import InvalidValue, Unsupported
from noisin.noise import Bernoulli, Noise


@dataclass(frozen=True)
class Shard:
    """Some columns of a batch: ``size`` of ``total``, from ``start`` on.

    Where processes split a batch, each draws the noise of all columns and keeps its own. So their
    generators stay alike, and together they have the noise that one process would have.
    """

    start: int
    size: int
    total: int

    def sample(
        self, noise: Noise, shape: Sequence[int], like: Tensor, generator: Generator | None
    ) -> Tensor:
        """Noise ``(..., rows, F)``, where rows are these columns, or K copies of them."""
        *lead, rows, features = shape
        if rows % self.size:
            raise InvalidValue(
                f"noise: this model has its share of a batch, {self.size} of {self.total} columns, "
                f"and was given {rows} rows. Give it those columns, or K copies of them."
            )
        all_rows = rows // self.size * self.total
        eps = noise.sample((*lead, all_rows, features), like=like, generator=generator)
        columns = eps.view(*lead, -1, self.total, features)
        return columns.narrow(-2, self.start, self.size).reshape(tuple(shape))


class Stochastic(nn.Module):
    """A module that draws noise or masks: from its generator, and for its columns of the batch.

    Everything random inside a model draws here, so that processes that share a batch draw what one
    process would, and gradient checkpointing recomputes what was drawn or refuses.
    """

    generator: Generator | None
    shard: Shard | None = None
    mask_law: type[Any] = Bernoulli  # see regularizers.set_dropout_law
    rows_share: bool = False  # whether all rows have one draw at present, as of weights
    _held: dict[Any, Tensor] | None = None  # masks that are kept: see held_masks
    _sample: int = 0  # which of K samples is drawn: each holds masks of its own
    _source: Callable[..., Tensor] | None = None  # of noise in place of fresh one: see replay

    def _draw(
        self, noise: Noise, shape: Sequence[int], like: Tensor, shared: bool = False
    ) -> Tensor:
        """Noise of this shape, whose dimension -2 has the rows of the batch, unless ``shared``.

        What all rows share, such as a mask of weights, is drawn alike by all processes.
        """
        if self._source is not None:
            return self._source(self, noise, shape, like, shared)
        return self._fresh(noise, shape, like, shared)

    def _fresh(self, noise: Noise, shape: Sequence[int], like: Tensor, shared: bool) -> Tensor:
        if self.generator is not None and torch_state.compiling():
            _refuse_to_compile_a_given_generator(type(self).__name__)
        # Inside a backward pass this is gradient checkpointing, which rewinds torch's own streams
        # but cannot know of this one: the recomputed noise would not be the noise of the forward.
        if self.generator is not None and torch_state.in_backward():
            raise Unsupported(
                f"{type(self).__name__}: gradient checkpointing recomputes the forward pass, and "
                f"would draw other noise from the generator given. Leave generator=None (torch's "
                f"global stream is rewound), or pass the noise as eps."
            )
        if self.shard is None or shared:
            eps = noise.sample(shape, like=like, generator=self.generator)
        else:
            eps = self.shard.sample(noise, shape, like, self.generator)
        if eps.shape != tuple(shape) or eps.dtype != like.dtype:
            raise InvalidValue(
                f"{type(noise).__name__}.sample: asked for shape {tuple(shape)} of {like.dtype}, "
                f"got {tuple(eps.shape)} of {eps.dtype}."
            )
        return eps

    def _mask(
        self,
        p: float,
        shape: Sequence[int],
        like: Tensor,
        shared: bool = False,
        name: str = "",
    ) -> Tensor:
        """A dropout mask, 0 or ``1/(1 - p)``: ``1 + eps`` of Bernoulli noise, or of another law.

        ``name`` tells masks of one module and shape apart, where they are held.
        """
        noise = Bernoulli(1 - p)
        if self.mask_law is not Bernoulli:
            noise = self.mask_law.from_variance(noise.variance)
        if self._held is None:
            return self._draw(noise, shape, like, shared).add_(1)
        key = name, p, tuple(shape), self._sample
        if key not in self._held:
            self._held[key] = self._draw(noise, shape, like, shared).add_(1)
        return self._held[key]


def _refuse_to_compile_a_given_generator(name: str) -> None:
    # torch.compile shows the calls that lead here and not the message: hence the name.
    raise Unsupported(
        f"{name}: torch.compile and torch.export cannot draw from a generator that is given. Leave "
        f"generator=None (torch's global stream), or pass the noise as eps."
    )


@contextmanager
def held_masks(
    model: nn.Module, masks: Mapping[str, dict[Any, Tensor]] | None = None
) -> Iterator[dict[str, dict[Any, Tensor]]]:
    """Draw each mask of ``model`` once, and give it again whenever one of its shape is asked for.

    Yields the masks, by module. Give them to hold the same ones in a later context.
    """
    held: dict[str, dict[Any, Tensor]] = {}
    modules = {n: m for n, m in model.named_modules() if isinstance(m, Stochastic)}
    try:
        for name, module in modules.items():
            module._held = held[name] = dict((masks or {}).get(name, {}))
        yield held
    finally:
        for module in modules.values():
            module._held = None


@contextmanager
def sample_of(model: nn.Module, k: int) -> Iterator[None]:
    """Let the modules of ``model`` draw for the k-th of several samples, one after another."""
    modules = [m for m in model.modules() if isinstance(m, Stochastic)]
    try:
        for module in modules:
            module._sample = k
        yield
    finally:
        for module in modules:
            module._sample = 0


def set_shard(model: nn.Module, shard: Shard | None) -> None:
    """Set the columns of the batch that the modules of ``model`` draw noise and masks for."""
    for module in model.modules():
        if isinstance(module, Stochastic):
            module.shard = shard
