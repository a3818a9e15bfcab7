"""Draw sequences of values from a model, step by step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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
    encode_next: Callable[..., tuple[Tensor, State, State]] = model.encode_next
    if isinstance(model, LatentModel):
        encode_next = partial(encode_next, generator=generator)
    drawn: list[Tensor] = []
    while len(drawn) < length:
        z, memory, state = encode_next(x.unsqueeze(0), state)
        s = z[-1] if sample else model.head.predict(z, memory)[-1]
        if not s.isfinite().all():
            raise Unsupported(
                f"draw: the model predicts NaN or infinity at step {len(drawn) + 1}: its weights "
                f"have diverged, or a path has. Use an earlier checkpoint or fewer steps."
            )
        drawn.append((sample or likelihood.sample)(s, generator))
        x = next_input(drawn[-1])
    return torch.stack(drawn)
