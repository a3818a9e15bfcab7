"""One training step of a tied language model, plain as its users write it, and noisin's.

Both embed words in H dimensions, run two LSTM layers of H, predict with the embedding and a bias,
clip the gradient and take a step of SGD. The plain one has dropout, the full cross-entropy and no
average; noisin's has noise, the chunked one, and an average of its iterates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import noisin
from benchmarks.rivals import GAMMA
from noisin import noise, training
from noisin.recurrent import kernels

CLIP = 0.25


@dataclass(frozen=True)
class Shape:
    """Vocabulary O, width H and window T × N of a language model."""

    O: int  # noqa: E741
    H: int = 650
    N: int = 80
    T: int = 35
    layers: int = 2

    def window(self) -> tuple[Tensor, Tensor]:
        """Words, and the words that follow."""
        generator = torch.Generator().manual_seed(1111)
        words = torch.randint(self.O, (self.T + 1, self.N), generator=generator)
        return words[:-1], words[1:]


class Tied(nn.Module):
    """What the two have in common."""

    def __init__(self, shape: Shape, rnn: nn.LSTM) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.O, shape.H)
        self.rnn = rnn
        self.bias = nn.Parameter(torch.zeros(shape.O))
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)


class Plain(Tied):
    """Torch's LSTM, dropout and the full cross-entropy."""

    def __init__(self, shape: Shape, p: float = 0.5) -> None:
        super().__init__(shape, nn.LSTM(shape.H, shape.H, shape.layers, dropout=p))
        self.dropout = nn.Dropout(p)

    def forward(self, x: Tensor, target: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The loss and the state."""
        z, state = self.rnn(self.dropout(self.embedding(x)), state)
        s = F.linear(self.dropout(z), self.embedding.weight, self.bias)
        loss = F.cross_entropy(s.flatten(0, 1), target.flatten())
        return loss, tuple(part.detach() for part in state)


class Noisy(Tied):
    """Noise on every state, and never all logits."""

    def __init__(self, shape: Shape) -> None:
        law = noise.Gaussian(GAMMA)
        super().__init__(shape, noisin.LSTM(shape.H, shape.H, shape.layers, noise=law))

    def forward(self, x: Tensor, target: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The loss and the state."""
        z, state = self.rnn(self.embedding(x), state)
        V = self.embedding.weight.t()
        loss = noisin.linear_nll(z, V, target, self.bias, reduction="mean")
        return loss, tuple(part.detach() for part in state)


def plain_step(shape: Shape) -> Callable[[], None]:
    """A training step of the plain model."""
    model = Plain(shape)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return stepper(model, shape, optimizer, after=lambda: None)


def noisy_step(shape: Shape, kernel: str = "auto") -> Callable[[], None]:
    """A training step of noisin's model, by one of its kernels."""
    model = Noisy(shape)
    average = training.Average(model.parameters())
    step = stepper(model, shape, training.sgd(model.parameters(), lr=1.0), after=average.update)

    def run() -> None:
        with kernels.using(kernel):
            step()

    return run


def stepper(
    model: nn.Module,
    shape: Shape,
    optimizer: torch.optim.Optimizer,
    after: Callable[[], None],
) -> Callable[[], None]:
    """Forward, backward, clip, step; the state is carried from window to window."""
    x, target = shape.window()
    state: Any = None

    def step() -> None:
        nonlocal state
        optimizer.zero_grad()
        loss, state = model(x, target, state)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        after()

    return step


STEPS = {"plain": plain_step, "noisin": noisy_step}
