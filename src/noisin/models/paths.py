"""Draw sequences of values from a model, step by step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from noisin.errors import InvalidType, Unsupported
from noisin.models.base import State
from noisin.models.latent.base import LatentModel
from noisin.models.sequence import SequenceModel


@torch.no_grad()
def draw(
    model: SequenceModel | LatentModel,
    x: Tensor,
    length: int,
    next_input: Callable[[Tensor], Tensor],
    *,
    state: State = None,
    generator: Generator | None = None,
) -> Tensor:
    """Ancestral samples ``(length, N, O)``: each step is drawn from its prediction, and then read.

    A stochastic RNN first draws the latent variable of a step from its prior. The model is used as
    it is: call ``model.eval()`` first, or leave its noise on.

    Args:
        model: of values, with a head that has a likelihood. If the head has ``sample(z,
            generator)``, as :class:`~.autoregressive.Autoregressive`, it draws the values itself.
        x: the input of the first step, ``(N, F)``.
        length: the number of steps.
        next_input: maps what was drawn, ``(N, O)``, to the next input, ``(N, F)``.
        state: the state before the first step; zeros by default.
        generator: the random stream.

    >>> import noisin
    >>> from noisin.likelihoods import Bernoulli
    >>> from noisin.models import Dense, Values
    >>> model = SequenceModel(Values(3), [noisin.LSTM(3, 4)], Dense(4, 3, Bernoulli())).eval()
    >>> draw(model, torch.zeros(2, 3), 5, lambda drawn: drawn).shape
    torch.Size([5, 2, 3])
    """
    likelihood, sample = (getattr(model.head, name, None) for name in ("likelihood", "sample"))
    if likelihood is None:
        raise InvalidType(
            f"draw: {type(model.head).__name__} has no likelihood to draw from. Use a linear head."
        )
    step = _encoding(model) if sample else _predicting(model)
    if isinstance(model, LatentModel):
        step = partial(step, generator=generator)
    drawn: list[Tensor] = []
    while len(drawn) < length:
        s, state = step(x.unsqueeze(0), state)
        if not s.isfinite().all():
            raise Unsupported(
                f"draw: the model predicts NaN or infinity at step {len(drawn) + 1}: its weights "
                f"have diverged, or a path has. Use an earlier checkpoint or fewer steps."
            )
        drawn.append((sample or likelihood.sample)(s, generator))
        x = next_input(drawn[-1])
    return torch.stack(drawn)


Step = Callable[..., tuple[Tensor, State]]


def _predicting(model: SequenceModel | LatentModel) -> Step:
    """A step to the parameters of the next value, ``(N, O)``, and the state."""
    return model.predict_next


def _encoding(model: SequenceModel | LatentModel) -> Step:
    """A step to what the head reads, ``(N, H)``, and the state."""

    def step(x: Tensor, state: State, **options: Any) -> tuple[Tensor, State]:
        z, _, state = model.encode_next(x, state, **options)
        return z[-1], state

    return step
