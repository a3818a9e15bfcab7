"""One pass over the steps of a batch: the loop that the bounds of all stochastic RNNs have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Generator, Tensor

from noisin import noise as laws
from noisin._util import arguments, checks, states
from noisin.data.batch import Batch
from noisin.errors import InvalidType, InvalidValue
from noisin.models.base import State
from noisin.models.latent.gaussian import DiagonalGaussian

if TYPE_CHECKING:
    from noisin.models.latent.base import LatentModel

STANDARD = laws.Gaussian(1.0)

# What a model computes of all steps at once: tensors (T, N, ...). Without targets, None is in the
# place of what only the posterior reads.
Inputs = tuple[Any, ...]
# (inputs, state, eta) -> (step, state): the inputs are one step of the context, and eta is standard
# normal, (N, Z).
StepFunction = Callable[[Inputs, State, Tensor], "tuple[LatentStep, State]"]


class LatentStep(NamedTuple):
    """One step of each row, or all steps stacked.

    Attributes:
        z: the latent variable, drawn from ``q``.
        q: its posterior; without targets, the prior.
        p: its prior.
        read: what the emission reads.
    """

    z: Tensor
    q: DiagonalGaussian
    p: DiagonalGaussian
    read: Tensor

    @classmethod
    def stack(cls, steps: Sequence[LatentStep]) -> LatentStep:
        """Those of all steps as one, ``(T, N, ...)``."""
        return cls(
            torch.stack([step.z for step in steps]),
            DiagonalGaussian.stack([step.q for step in steps]),
            DiagonalGaussian.stack([step.p for step in steps]),
            torch.stack([step.read for step in steps]),
        )


def unbound(inputs: Inputs, T: int) -> list[Inputs]:
    """Those of each step.

    They are unbound once, because the gradient of ``inputs[t]`` is as large as all T steps.
    """
    parts = [[None] * T if part is None else part.unbind() for part in inputs]
    return list(zip(*parts, strict=True))


class Walk:
    """One pass over the steps of a batch, with K particles of each row.

    Args:
        model: the model.
        batch: the batch, of N rows; or its inputs alone, to draw z from the prior.
        state: the state that an earlier pass carried, of N rows or of K·N; None for zeros.
        K: the number of particles; particle k of row n is row k·N + n.
        eta: standard normal noise, ``(T, K·N, Z)``; drawn if it is not given.
        generator: the random stream to draw it with; that of the model by default.
    """

    def __init__(
        self,
        model: LatentModel,
        batch: Batch | Tensor,
        state: State,
        *,
        K: int = 1,
        eta: Tensor | None,
        generator: Generator | None = None,
    ) -> None:
        self.K = arguments.whole("Walk: K", K, what="a whole number of particles")
        above, below = _parts(model, state)
        if isinstance(batch, Batch):
            self.inputs, self.above = model.context(batch, above)
        else:
            self.inputs, self.above = model.prior_context(batch, above)
        like: Tensor = self.inputs[0]
        T, N = like.shape[:2]
        self.state = model.initial(like[0]) if below is None else below
        self.state = states.spread(self.state, N, K)
        shape = (T, K * N, model.z_size)
        if generator is not None:
            self.eta = STANDARD.sample(shape, like=like, generator=generator)
        elif eta is None:
            self.eta = model._draw(STANDARD, shape, like)
        else:
            self.eta = _given(eta, shape, like)
        self.model = model

    def steps(self) -> LatentStep:
        """All steps, stacked."""
        inputs = tuple(states.repeat(self.inputs, self.K))
        found, self.state = self.model.steps(inputs, self.state, self.eta)
        return found

    @cached_property
    def _by_step(self) -> tuple[StepFunction, list[Inputs]]:
        return self.model.sequence(), unbound(self.inputs, len(self.eta))

    def step(self, t: int) -> LatentStep:
        """The next step, of several between which :meth:`select` may be called."""
        run, inputs = self._by_step
        found, self.state = run(states.repeat(inputs[t], self.K), self.state, self.eta[t])
        return found

    def select(self, ancestors: Tensor) -> None:
        """Continue with these particles, ``(K, N)``: their numbers, for each row of the batch."""
        N = ancestors.shape[1]
        rows = (ancestors * N + torch.arange(N, device=ancestors.device)).flatten()
        self.state = states.map(lambda part: part.index_select(-2, rows), self.state)

    @property
    def carried(self) -> State:
        """The state to continue from in the next batch."""
        return self.above, self.state


def _parts(model: LatentModel, state: State) -> tuple[State, State]:
    """The state of the context and that of the steps, of what an earlier pass carried."""
    if state is None:
        return None, None
    if not isinstance(state, tuple | list) or len(state) != 2:
        raise InvalidType(
            f"{type(model).__name__}: expected a state that a previous call returned, or None for "
            f"zeros, got {type(state).__name__}."
        )
    above, below = state
    return above, below


def _given(eta: Tensor, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Noise that is given, in the dtype of the model."""
    checks.require_noise_tensor("bound", eta, like, what="eta", of="standard normal noise")
    if eta.shape != shape:
        raise InvalidValue(
            f"bound: expected eta of shape {shape}, (T, N, Z) or (T, K·N, Z), got "
            f"{tuple(eta.shape)}."
        )
    checks.require_finite("bound", eta, what="eta")
    return eta.to(like)
