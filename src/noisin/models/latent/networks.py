"""The deterministic parts of stochastic RNNs: dense layers, and recurrent layers with noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from noisin.models.layers import Layer, emitted_dropouts, own_stream, recurrent_layers
from noisin.recurrent.cell import CellSpec, find
from noisin.recurrent.cells import GRUCell, LSTMCell, RNNCell, sequence_step
from noisin.recurrent.injection import Injection
from noisin.recurrent.samples import is_plain
from noisin.regularizers.sequences import Dropout, Dropouts

Activation = Literal["relu", "clipped-leaky-relu"]
Advance = Callable[[Tensor, Any], tuple[Tensor, Any]]

_NOISY: Mapping[str, Any] = {"lstm": LSTMCell, "gru": GRUCell}  # the others are Elman cells


def linear(in_features: int, out_features: int, generator: Generator | None = None) -> nn.Linear:
    """A linear layer with uniform weights (Glorot and Bengio, 2010) and zero biases."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, in_features, out_features)  # type: ignore[no-untyped-call]
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


class ClippedLeakyReLU(nn.Module):
    """``max(x, x/3)``, clipped to ±3: the activation of Fraccaro et al. (2016)."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to each entry."""
        return F.leaky_relu(x, 1 / 3).clamp(-3.0, 3.0)


_ACTIVATIONS: Mapping[Activation, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "clipped-leaky-relu": ClippedLeakyReLU,
}


def dense(
    in_features: int,
    sizes: Sequence[int],
    *,
    activation: Activation = "relu",
    generator: Generator | None = None,
) -> nn.Sequential:
    """Linear layers of these sizes, each followed by the activation.

    >>> dense(3, [5, 4])(torch.zeros(2, 3)).shape
    torch.Size([2, 4])
    """
    layers: list[nn.Module] = []
    for size in sizes:
        layers += [linear(in_features, size, generator), _ACTIVATIONS[activation]()]
        in_features = size
    return nn.Sequential(*layers)


class Stack(nn.Module):
    """Recurrent layers that run all steps at once, because nothing that they read is drawn.

    Args:
        cell: the name of the transition function.
        sizes: of the input and of each layer.
        injection: how the noise is injected into them.
        dropout: ``between`` the layers.
    """

    def __init__(
        self,
        cell: str,
        sizes: Sequence[int],
        injection: Injection,
        dropout: Dropouts = Dropouts(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__()
        with own_stream(injection.generator):
            self.layers = recurrent_layers(cell, sizes, injection, Dropouts())
        for layer in self.layers:
            assert isinstance(layer, Layer)
            layer.reset_parameters(injection.generator)
        between = Dropouts(between=dropout.between, locked=dropout.locked)
        self.dropouts = emitted_dropouts(between, len(self.layers), injection.generator)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """``(T, N, F)`` to ``(T, N, H)``, and the states of the layers."""
        before = (None,) * len(self.layers) if state is None else state
        after = []
        for layer, dropout, part in zip(self.layers, self.dropouts, before, strict=False):
            x, part = layer(dropout(x), part)
            after.append(part)
        return x, tuple(after)


class StepStack(nn.Module):
    """Recurrent layers that run step by step, because they read what is drawn at a step.

    The arguments are those of :class:`Stack`. A GRU keeps its carry beside its noisy state.
    """

    def __init__(
        self,
        cell: str,
        sizes: Sequence[int],
        injection: Injection,
        dropout: Dropouts = Dropouts(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__()
        spec, count = find(cell), len(sizes) - 1
        injection.require_layers(count)
        self.hidden_size = sizes[-1]
        with own_stream(injection.generator):
            self.cells = nn.ModuleList(
                _cell(spec, sizes[k], sizes[k + 1], injection.of_layer(k, count))
                for k in range(count)
            )
        for part in self.cells:
            _reset(part, injection.generator)
        self.dropout = Dropout(dropout.between, dropout.locked, injection.generator)

    def only_lstm(self) -> nn.LSTMCell | None:
        """The cell, if there is no other, and it is an LSTM with biases that nothing hooks into."""
        cell, *others = self.cells
        known = type(cell) in (LSTMCell, LSTMCell._torch_class) and type(self) is StepStack
        lstm = cast(nn.LSTMCell, cell)
        return lstm if known and not others and lstm.bias and is_plain(cell) else None

    def sequence(self) -> Advance:
        """A function ``(x, state) -> (h, state)`` of one step, for one sequence."""
        steps = [partial(sequence_step(cell), 0) for cell in self.cells]
        masks: dict[int, Tensor] = {}

        def mask(k: int, like: Tensor) -> Tensor:
            drawn = masks.get(k)
            if drawn is None:
                drawn = self.dropout.mask(like.unsqueeze(0), like.shape[-1])[0]
            if self.dropout.locked:
                masks[k] = drawn
            return drawn

        def advance(x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
            before = (None,) * len(steps) if state is None else state
            after = []
            for k, (step, part) in enumerate(zip(steps, before, strict=True)):
                if k and self.dropout.acts:
                    x = x * mask(k, x)
                x, part = step(x, part)
                after.append(part)
            return x, tuple(after)

        return advance


def _cell(spec: CellSpec, input_size: int, hidden_size: int, injection: Injection) -> nn.Module:
    sizes = (input_size, hidden_size)
    if injection.layers == ():  # excluded from noise, also from set_noise
        clean: nn.Module = spec.load_cell()(*sizes, **spec.arguments)
        return clean
    options = {name: getattr(injection, name) for name in ("noise", "mode", "feedback", "share")}
    if spec.on_state is not None:
        options["site"] = injection.site
    found: nn.Module = _NOISY.get(spec.name, RNNCell)(
        *sizes, **spec.arguments, **options, generator=injection.generator
    )
    return found


def _reset(cell: nn.Module, generator: Generator | None) -> None:
    """Weights uniform on ±1/√H, biases zero, as those of a layer."""
    assert isinstance(cell, nn.RNNCellBase)
    bound = cell.hidden_size**-0.5
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            if name.startswith("bias"):
                parameter.zero_()
            else:
                parameter.uniform_(-bound, bound, generator=generator)


def reverse(x: Tensor, scored: Tensor | None) -> Tensor:
    """Each sequence backwards in time; what follows its last scored step, the padding, stays.

    >>> x = torch.arange(1.0, 7.0).view(3, 2, 1)
    >>> reverse(x, torch.tensor([[True, True], [True, True], [True, False]])).squeeze(-1).T
    tensor([[5., 3., 1.],
            [4., 2., 6.]])
    """
    if scored is None:
        return x.flip(0)
    steps = torch.arange(1, len(x) + 1, device=x.device).unsqueeze(1)
    lengths = (steps * scored).amax(0)
    order = torch.where(steps <= lengths, lengths - steps, steps - 1)
    return x.gather(0, order.unsqueeze(-1).expand_as(x))
