"""One recurrent layer of any cell, with noise on its state and dropout on what it reads of it.

Noise and dropout compose: at each step the transition reads ``z_{t-1} * m_t`` and emits
``z_t = h_t * (1 + eps_t)``. Without a mask this is one of noisin's modules, at its speed. Masks
need the loop over time, which runs on that module's own weights and noise, so that a layer has the
same parameters whatever its dropout is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn

from noisin._util import checks
from noisin.errors import Unsupported
from noisin.recurrent import drop_ins, functional
from noisin.recurrent.cell import CELLS
from noisin.recurrent.functional import States, Weights
from noisin.recurrent.injection import Injection
from noisin.recurrent.layout import Layout
from noisin.recurrent.stack import NoisyStack
from noisin.regularizers.sequences import Dropout


class Layer(nn.Module):
    """A single layer of noisin's RNN, LSTM or GRU, with recurrent dropout.

    Args:
        cell: one of :data:`CELLS`.
        input_size, hidden_size: its sizes.
        dropout: of the ``h_{t-1}`` that the recurrence reads; carry and memory stay whole.
        injection: of the noise.
    """

    def __init__(
        self, cell: str, input_size: int, hidden_size: int, dropout: Dropout, injection: Injection
    ) -> None:
        super().__init__()
        self.cell = cell
        spec = CELLS[cell]
        rnn = spec.load()(input_size, hidden_size, **spec.arguments)
        rnn._configure(injection)
        rnn._warn_of_risks()
        self.rnn: nn.RNNBase = rnn
        self.dropout = dropout
        if dropout.p:
            self._check_carry()

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Weights uniform on ±1/√H, biases zero."""
        bound = self.rnn.hidden_size**-0.5
        with torch.no_grad():
            for name, parameter in self.rnn.named_parameters():
                if name.startswith("bias"):
                    parameter.zero_()
                else:
                    parameter.uniform_(-bound, bound, generator=generator)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """``(T, N, F)`` to ``(T, N, H)``, and the state of the layer's RNN."""
        sizes = (self.rnn.hidden_size,) * (2 if self.cell == "lstm" else 1)
        if state is not None:
            drop_ins.initial_state("LanguageModel", state, Layout.of(x, False), 1, sizes, x)
        if not self.dropout.acts:
            z, state = self.rnn(x, state)
            return z, state
        return self._loop(x, state)

    def _loop(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        H, w = self.rnn.hidden_size, Weights(*self.rnn.all_weights[0])
        transition = partial(CELLS[self.cell].step, w=w)  # type: ignore[arg-type, misc]
        masks = self.dropout.mask(x, H)
        inject = self._injection(x)

        def step(t: int, gates: Tensor, state: States) -> tuple[Tensor, States]:
            z_prev, *memory = state
            h, *memory = transition(gates, (z_prev * masks[t], *memory))
            z = inject(t, h)
            return z, (z if self._feeds_back else h, *memory)

        zs, state = functional.scan(step, w.project(x).unbind(0), self._enter(x, state))
        return torch.stack(zs), self._leave(state)

    @property
    def _feeds_back(self) -> bool:
        return bool(getattr(self.rnn, "feedback", True))

    def _injection(self, x: Tensor) -> Callable[[int, Tensor], Tensor]:
        """The noise of this pass, as a function of step and state."""
        rnn = self.rnn
        if not isinstance(rnn, NoisyStack) or not rnn._noise_acts():  # torch's own after a revert
            return lambda _, h: h
        (eps,) = rnn.sample_eps(x)
        return lambda t, h: functional.inject(h, eps[t].to(h), rnn.noise_mode)

    def _enter(self, x: Tensor, hx: Any) -> States:
        """The state ``(z, ...)`` of the loop. A GRU's is (z, h): gates read z, the carry is h."""
        self._check_carry()
        count = 2 if self.cell == "lstm" else 1
        if hx is None:
            zeros = x.new_zeros(x.shape[1], self.rnn.hidden_size)
            state: States = (zeros,) * count
        else:
            state = tuple(part[0] for part in checks.state_parts("LanguageModel", hx, count))
        return state * 2 if self.cell == "gru" else state

    def _check_carry(self) -> None:
        if getattr(self.rnn, "site", None) == "state":
            raise Unsupported(
                "LanguageModel: recurrent dropout of a GRU drops what its gates read and keeps its "
                "carry, and site='state' makes the two one. Use site='read'."
            )

    def _leave(self, state: States) -> Any:
        """What the layer's RNN would return: tensors (1, N, H)."""
        if self.cell == "lstm":
            return tuple(part.unsqueeze(0) for part in state)
        return state[-1].unsqueeze(0)
