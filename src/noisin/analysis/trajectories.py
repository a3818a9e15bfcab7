"""The noisy outputs of a module, and the clean transition from the same noisy past.

The emissions z are those of the module's own forward pass, by whatever kernel runs it. The
transition ``f_W(x_{t-1}, z_{t-1})`` never touches the injection: torch's own layers, or the clean
cell, take one step from the noisy state that was emitted. What else is random, such as dropout or
zoneout inside of ``f_W``, belongs to it and is replayed with the same draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from noisin._util import checks
from noisin.errors import InvalidValue
from noisin.noise.biased import at_rest
from noisin.recurrent import cells
from noisin.recurrent.cells import NoisyCell, hidden, with_hidden
from noisin.recurrent.convert import NOISY
from noisin.recurrent.functional import States
from noisin.recurrent.injection import as_training
from noisin.recurrent.scanned import Scanned
from noisin.recurrent.stack import NoisyStack
from noisin.recurrent.windows import step_inputs

Kind = Literal["rnn", "cell"]


class Trajectory(NamedTuple):
    """The output of one layer and its clean transition from the same past, both ``(T, K, H)``."""

    z: Tensor
    f: Tensor


class Runner:
    """A common interface to RNNs and cells: whole sequences and single steps, time first."""

    def __init__(self, module: nn.Module, kind: Kind | None) -> None:
        checks.require_module("check_unbiased", module)
        recurrent = isinstance(module, nn.RNNBase)
        self.module = module
        layer = recurrent or isinstance(module, Scanned)
        self.kind = ("rnn" if layer else "cell") if kind is None else kind
        checks.one_of("check_unbiased: kind", self.kind, ("rnn", "cell"))
        self.time = 1 if recurrent and module.batch_first else 0
        self.bidirectional = recurrent and bool(module.bidirectional)
        if not recurrent:
            checks.require_cell("check_unbiased", module)
        with as_training(module):
            noisy = isinstance(module, NoisyStack | NoisyCell | Scanned)
            self.noisy = noisy and module._noise_acts()  # type: ignore[operator]
        if self.bidirectional and not self.noisy:
            raise InvalidValue(
                f"check_unbiased: a bidirectional {type(module).__name__} without noise cannot be "
                f"run step by step. Check one direction, or convert it: "
                f"noisin.convert(module, noise)."
            )

    def run(self, x: Tensor) -> Tensor:
        """The outputs of the module over a sequence, ``(T, N, H)``."""
        if self.kind == "cell":
            return cells.unroll(self.module, x)[0]
        z: Tensor = self.module(x.transpose(0, self.time))[0]
        return z.transpose(0, self.time)

    def trajectories(self, x: Tensor) -> list[Trajectory]:
        """Run the module on ``(T, K, F)``: one trajectory per noisy layer, in order.

        Where biased noise leaves its mean with the noise off, that is part of the clean transition.
        """
        rest = at_rest(getattr(self.module, "noise", None))
        mean = 1.0 if rest is None else 1.0 + rest.value
        return [Trajectory(z, mean * f) for z, f in self._trajectories(x)]

    def _trajectories(self, x: Tensor) -> list[Trajectory]:
        if isinstance(self.module, NoisyStack) and self.noisy:
            return _of_stack(self.module, lambda: self.run(x))
        if isinstance(self.module, NoisyCell) and self.noisy:
            return [_of_cell(self.module, x)]
        if isinstance(self.module, Scanned) and self.noisy:
            return [_of_scanned(self.module, x)]
        return [self._by_steps(x)]

    def _by_steps(self, x: Tensor) -> Trajectory:
        """Each step from the same noisy past: once as in training, once without noise."""
        zs, fs, state = [], [], None
        with as_training(self.module, False):
            clean_inputs = self._inputs(x)
        for x_t, clean in zip(self._inputs(x), clean_inputs, strict=True):
            with as_training(self.module, False):
                fs.append(self._step(clean, state)[0])
            z, state = self._step(x_t, state)
            zs.append(z)
        return Trajectory(torch.stack(zs), torch.stack(fs))

    def _inputs(self, x: Tensor) -> Sequence[Any]:
        return step_inputs(self.module, x) if self.kind == "cell" else x.unbind(0)

    def _step(self, x: Any, state: Any) -> tuple[Tensor, Any]:
        if self.kind == "cell":
            state = self.module(x, state)
            return hidden(self.module, state), state
        z, state = self.module(x.unsqueeze(self.time), state)
        return z.squeeze(self.time), state


class _Emission(NamedTuple):
    """A recorded run of several layers: input, output, and the random state before it."""

    first: int
    last: int
    x: Tensor
    z: Tensor
    stream: Tensor


def _of_stack(stack: NoisyStack, run: Callable[[], Any]) -> list[Trajectory]:
    emissions: list[_Emission] = []
    emit = stack._emit

    def recorded(
        first: int, last: int, x: Tensor, state: States, run: Any
    ) -> tuple[Tensor, States]:
        stream = torch.get_rng_state()
        z, final = emit(first, last, x, state, run)
        emissions.append(_Emission(first, last, x, z, stream))
        return z, final

    with _replaced(stack, "_emit", recorded):
        run()
    after = torch.get_rng_state()
    found = [Trajectory(each.z, _clean_transitions(stack, each)) for each in emissions]
    torch.set_rng_state(after)
    return found


def _of_cell(cell: NoisyCell, x: Tensor) -> Trajectory:
    inputs: list[Any] = []  # with the masks that were drawn for the whole window
    streams: list[Tensor] = []
    transition = cell.transition

    def recorded(x: Any, state: Any = None) -> Any:
        inputs.append(x)
        streams.append(torch.get_rng_state())
        return transition(x, state)

    with _replaced(cell, "transition", recorded):
        z, _ = cells.step_by_step(cell, x)
    after = torch.get_rng_state()
    state, fs = None, []
    for t, stream in enumerate(streams):
        torch.set_rng_state(stream)
        state = transition(inputs[t], state)
        fs.append(hidden(cell, state))
        if cell.feedback:
            state = with_hidden(cell, state, z[t])
    torch.set_rng_state(after)
    return Trajectory(z, torch.stack(fs))


def _of_scanned(layer: Scanned, x: Tensor) -> Trajectory:
    """Of all steps at once; the clean transition is the cell, called for one step."""
    z, _ = layer(x)
    fs: list[Tensor] = []
    for t, x_t in enumerate(x):
        read = None if t == 0 else (z[t - 1] if layer.feedback else fs[-1])
        fs.append(layer.cell(x_t, read))
    return Trajectory(z, torch.stack(fs))


@contextmanager
def _replaced(module: nn.Module, name: str, method: Callable[..., Any]) -> Iterator[None]:
    """Replace a method of one module inside the context."""
    setattr(module, name, method)
    try:
        yield
    finally:
        delattr(module, name)


def _clean_transitions(stack: NoisyStack, span: _Emission) -> Tensor:
    """``f_W`` of every step, from the input of the span and its output states."""
    sigmoid = getattr(stack, "nonlinearity", None) == "sigmoid"
    if not stack.feedback and not sigmoid:
        layers = _torch_layers(stack, span.first, span.last)
        torch.set_rng_state(span.stream)  # of the dropout between these layers
        f: Tensor = layers(span.x)[0]
        return f
    directions = []
    for d, z in enumerate(span.z.chunk(stack._directions, dim=-1)):
        step = _sigmoid_step(stack, span.last, d) if sigmoid else _torch_step(stack, span.last, d)
        order = list(range(len(z)))[:: -1 if d else 1]
        fs: dict[int, Tensor] = {}
        read, carry = torch.zeros_like(z[0]), None
        for t in order:
            fs[t], carry = step(span.x[t], read, carry)
            read = z[t] if stack.feedback else fs[t]
        directions.append(torch.stack([fs[t] for t in range(len(z))]))
    return torch.cat(directions, dim=-1)


# (x_{t-1}, z_{t-1}, c_{t-1}) -> (f_W, c_t); a carry of None is zero
_Step = Callable[[Tensor, Tensor, Any], tuple[Tensor, Any]]


def _torch_layers(
    stack: NoisyStack, first: int, last: int, direction: int | None = None
) -> nn.RNNBase:
    """Torch's module with the weights of these layers, and of one direction if given."""
    D = stack._directions
    numbers = [k for k in range(first * D, (last + 1) * D) if direction in (None, k % D)]
    weights = [stack.all_weights[k] for k in numbers]
    make = next(kind for kind, noisy in NOISY.items() if isinstance(stack, noisy))
    options: dict[str, Any] = {"proj_size": stack.proj_size} if make is nn.LSTM else {}
    if make is nn.RNN:
        options["nonlinearity"] = stack.nonlinearity
    layers = make(
        weights[0][0].shape[1],
        stack.hidden_size,
        last - first + 1,
        bias=stack.bias,
        dropout=stack.dropout if last > first else 0.0,
        bidirectional=stack.bidirectional and direction is None,
        device=weights[0][0].device,
        dtype=weights[0][0].dtype,
        **options,
    )
    assert isinstance(layers, nn.RNNBase)
    for theirs, ours in zip(layers.all_weights, weights, strict=True):
        for parameter, value in zip(theirs, ours, strict=True):
            parameter.data.copy_(value)
    return layers


def _torch_step(stack: NoisyStack, layer: int, direction: int) -> _Step:
    cell = _torch_layers(stack, layer, layer, direction)

    def lstm(x: Tensor, z: Tensor, c: Any) -> tuple[Tensor, Any]:
        c = x.new_zeros(1, len(x), stack.hidden_size) if c is None else c
        _, (f, c) = cell(x.unsqueeze(0), (z.unsqueeze(0).contiguous(), c))
        return f.squeeze(0), c

    def plain(x: Tensor, z: Tensor, carry: Any) -> tuple[Tensor, Any]:
        f = cell(x.unsqueeze(0), z.unsqueeze(0).contiguous())[0].squeeze(0)
        if getattr(stack, "site", "state") == "state" or not stack.feedback:
            return f, None
        # Torch's GRU carries what it reads, u z + (1 - u) n; ours carries the clean h, u h + ...
        w_ih, w_hh, *b = cell.all_weights[0]
        b_ih, b_hh = b or (None, None)
        u = (F.linear(x, w_ih, b_ih) + F.linear(z, w_hh, b_hh)).chunk(3, dim=-1)[1].sigmoid()
        f = f + u * ((0 if carry is None else carry) - z)
        return f, f

    return lstm if isinstance(cell, nn.LSTM) else plain


def _sigmoid_step(stack: NoisyStack, layer: int, direction: int) -> _Step:
    """The equation of a sigmoid RNN, which torch does not have."""
    w_ih, w_hh, *b = stack.all_weights[layer * stack._directions + direction]
    b_ih, b_hh = b or (None, None)
    return lambda x, z, _: ((F.linear(x, w_ih, b_ih) + F.linear(z, w_hh, b_hh)).sigmoid(), None)
