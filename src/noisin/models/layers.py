"""A recurrent layer of any cell, with noise and recurrent dropout on its state.

A cell with kernels uses them. Its noise and its recurrent dropout compose, because the kernels
accept a mask on what the recurrence reads. Other cells, and cells with zoneout or dropout inside
their gates, run step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Generator, Tensor, nn

from noisin._util import arguments, checks, states
from noisin._util.settings import construct
from noisin.errors import InvalidType, Unsupported
from noisin.recurrent import drop_ins
from noisin.recurrent.cell import CellSpec, find
from noisin.recurrent.cells import Noisy
from noisin.recurrent.convert import clean_twin
from noisin.recurrent.injection import Injection
from noisin.recurrent.layout import Layout
from noisin.recurrent.samples import repeat_rows
from noisin.recurrent.stack import NoisyStack
from noisin.recurrent.unrolled import Unrolled
from noisin.regularizers.cells import DropoutLSTMCell
from noisin.regularizers.sequences import Dropout, Dropouts
from noisin.regularizers.synaptic import SynapticNoise
from noisin.regularizers.transitions import Zoneout
from noisin.regularizers.weights import RandomWeights, WeightDrop, WeightNoise

CellChoice = str | Callable[[int, int], Any]


class Layer(nn.Module):
    """A layer ``(T, N, F), state -> (T, N, H), state`` with recurrent dropout.

    Args:
        rnn: one layer of noisin's RNN, LSTM or GRU, or an :class:`~noisin.Unrolled` cell.
        dropout: applied to the ``h_{t-1}`` that the recurrence reads, not to carry and memory.
        weights: draws weights for each forward pass in place of those of ``rnn``; None is not to.
    """

    def __init__(
        self, rnn: nn.Module, dropout: Dropout, weights: RandomWeights | None = None
    ) -> None:
        super().__init__()
        self.rnn = rnn
        self.dropout = dropout
        self.weights = weights

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Weights uniform on ±1/√H, biases zero; a custom cell keeps its initialisation."""
        with torch.no_grad():
            for module in self.rnn.modules():
                if not isinstance(module, nn.RNNBase | nn.RNNCellBase):
                    continue
                bound = module.hidden_size**-0.5
                for name, parameter in module.named_parameters(recurse=False):
                    if name.startswith("bias"):
                        parameter.zero_()
                    else:
                        parameter.uniform_(-bound, bound, generator=generator)

    def forward(self, x: Tensor, state: Any = None, *, samples: int = 1) -> tuple[Tensor, Any]:
        """``(T, N, F)`` to ``(T, N, H)``, and the state; of K samples, as in a stack."""
        rnn, given = self.rnn, self._random_weights()
        if samples != 1:
            if isinstance(rnn, NoisyStack) and not self.dropout.acts:
                z, state = rnn(x, state, samples=samples, **given)
                return z, state
            x, state = repeat_rows(x, samples), states.spread(state, x.shape[1], samples)
        if state is not None and isinstance(rnn, nn.RNNBase):
            sizes = (rnn.hidden_size,) * (2 if isinstance(rnn, nn.LSTM) else 1)
            drop_ins.initial_state("LanguageModel", state, Layout.of(x, False), 1, sizes, x)
        if not (self.dropout.acts or given) or not isinstance(rnn, nn.RNNBase):
            z, state = rnn(x, state)
            return z, state
        if not isinstance(rnn, NoisyStack):  # a torch module, after noisin.revert
            rnn = clean_twin(rnn)
        if self.dropout.acts:
            given["read_mask"] = self.dropout.mask(x, rnn.hidden_size).unsqueeze(0)
        z, state = rnn(x, state, **given)
        return z, state

    def _random_weights(self) -> dict[str, Any]:
        """The argument ``weights`` of a stack, if they are random at present."""
        if self.weights is None or not self.weights.acts or not isinstance(self.rnn, nn.RNNBase):
            return {}
        own = {name: getattr(self.rnn, name) for name in self.rnn._flat_weights_names}
        return {"weights": self.weights(own)}


def layer(
    cell: CellChoice,
    input_size: int,
    hidden_size: int,
    *,
    injection: Injection = Injection(),  # noqa: B008 - frozen
    dropout: Dropout | None = None,
    zoneout: tuple[float, float] | None = None,
    gate_dropout: tuple[float, float] | None = None,
    weight_drop: WeightDrop | None = None,
    weight_noise: WeightNoise | None = None,
) -> Layer:
    """Build a layer.

    Args:
        cell: a name of :data:`~noisin.recurrent.names.CELL_NAMES`, ``"package.module:Class"``, or a
            class ``Cell(input_size, hidden_size)`` whose instances are ``(x, state) -> state``.
        input_size, hidden_size: the sizes of the layer.
        injection: how the noise is injected.
        dropout: applied to what the recurrence reads, for a cell with kernels.
        zoneout: the rates ``(p_h, p_c)`` of :class:`~noisin.regularizers.Zoneout`, or None.
        gate_dropout: the rates ``(x, h)`` of the paper's eight masks inside an LSTM,
            :class:`~noisin.regularizers.DropoutLSTMCell`, or None.
        weight_drop: dropout of the recurrent weights, for a cell with kernels, or None.
        weight_noise: noise on the weights, or None.

    >>> z, (h, c) = layer("lstm", 2, 3, gate_dropout=(0.5, 0.4))(torch.zeros(5, 1, 2))
    >>> z.shape
    torch.Size([5, 1, 3])
    """
    dropout = Dropout(0.0) if dropout is None else dropout
    spec = find(cell) if isinstance(cell, str) else None
    build = _class(cell) if spec is None else spec.load()
    stacked = isinstance(build, type) and issubclass(build, NoisyStack)
    weights = _weights(weight_drop, weight_noise, injection.generator)
    per_step = weight_noise is not None and weight_noise.per_step
    if stacked and zoneout is None and gate_dropout is None and not per_step:
        rnn = _stack(build, spec, (input_size, hidden_size), injection, dropout)
        return Layer(rnn, dropout, weights)
    if weights is not None:
        raise Unsupported(
            "LanguageModel: weight_drop, and weight_noise per sequence, replace the weights of a "
            "layer with kernels, and this layer runs step by step because of its cell, zoneout, "
            "gate_dropout or weight_noise per step. Use one or the other."
        )
    if dropout.p:
        raise Unsupported(
            "LanguageModel: recurrent dropout needs a layer with kernels, and this layer runs step "
            "by step because of its cell, zoneout, gate_dropout or weight_noise per step. Use "
            "dropout.recurrent = 0."
        )
    if gate_dropout is not None:
        step = _dropout_lstm(spec, input_size, hidden_size, gate_dropout, injection)
    elif stacked:
        step = _single(spec, injection, input_size, hidden_size)
    else:
        step = construct("LanguageModel: cell", build, input_size, hidden_size)
        checks.require_cell("LanguageModel: cell", step)
    if weight_noise is not None and per_step:
        std, mode = weight_noise.std, weight_noise.mode
        step = SynapticNoise(step, std, mode, generator=injection.generator)
    if zoneout is not None:
        p_h, p_c = _pair("zoneout", "(p_h, p_c)", zoneout)
        step = Zoneout(step, p_h, p_c, generator=injection.generator)
    return Layer(Unrolled(_noisy(step, injection)), dropout)


def recurrent_layers(
    cell: CellChoice, sizes: Sequence[int], injection: Injection, dropout: Dropouts, **options: Any
) -> nn.ModuleList:
    """Stacked layers, from ``sizes[0]`` inputs to ``sizes[-1]`` outputs.

    ``options`` are passed to :func:`layer`: ``zoneout``, ``gate_dropout``, ``weight_drop``,
    ``weight_noise``.
    """
    count = len(sizes) - 1
    injection.require_layers(count)
    return nn.ModuleList(
        layer(
            cell,
            *sizes[k : k + 2],
            injection=injection.of_layer(k, count),
            dropout=Dropout(dropout.recurrent, dropout.locked, injection.generator),
            **options,
        )
        for k in range(count)
    )


def emitted_dropouts(
    dropout: Dropouts, num_layers: int, generator: Generator | None = None
) -> nn.ModuleList:
    """The dropout before the layers, between them and after the last."""
    rates = [dropout.input, *[dropout.between] * (num_layers - 1), dropout.output]
    return nn.ModuleList(Dropout(p, dropout.locked, generator) for p in rates)


def _stack(
    build: Callable[..., Any],
    spec: CellSpec | None,
    sizes: tuple[int, int],
    injection: Injection,
    dropout: Dropout,
) -> NoisyStack:
    """One layer of noisin's RNN, LSTM or GRU."""
    rnn: NoisyStack = build(*sizes, **({} if spec is None else spec.arguments))
    rnn._configure(injection)
    rnn._warn_of_risks()
    if dropout.p and not rnn._cell.masks:
        raise Unsupported(
            "LanguageModel: recurrent dropout of a GRU drops what its gates read and keeps its "
            "carry; with site='state' both are the same tensor. Use site='read'."
        )
    return rnn


def _weights(
    drop: WeightDrop | None, noise: WeightNoise | None, generator: Generator | None
) -> RandomWeights | None:
    """What draws the weights of each forward pass, if anything does."""
    for name, part, kind in (("drop", drop, WeightDrop), ("noise", noise, WeightNoise)):
        if part is not None:
            advice = f"Pass, for example, regularizers.{kind.__name__}(0.1)."
            arguments.instance(f"LanguageModel: weight_{name}", part, kind, advice)
    weights = RandomWeights(drop, None if noise and noise.per_step else noise, generator)
    return weights if weights.acts else None


def _pair(name: str, what: str, rates: object) -> tuple[float, float]:
    if not isinstance(rates, tuple | list) or len(rates) != 2:
        raise InvalidType(f"LanguageModel: {name} must be None or {what}, got {rates!r:.60}.")
    return rates[0], rates[1]


def _class(cell: object) -> Callable[..., Any]:
    if not callable(cell) or isinstance(cell, nn.Module):
        raise InvalidType(
            f"LanguageModel: cell must be a name, 'package.module:Class', or a class "
            f"Cell(input_size, hidden_size), got {cell!r:.60}. Each layer creates its own cell."
        )
    return cell


def _dropout_lstm(
    spec: CellSpec | None, input_size: int, hidden_size: int, rates: object, injection: Injection
) -> nn.Module:
    if spec is None or spec.name != "lstm":
        raise Unsupported(
            "LanguageModel: gate_dropout is defined for the gates of an LSTM. Use cell='lstm'."
        )
    p_x, p_h = _pair("gate_dropout", "(x, h)", rates)
    return DropoutLSTMCell(input_size, hidden_size, p_x=p_x, p_h=p_h, generator=injection.generator)


def _single(spec: CellSpec | None, injection: Injection, *sizes: int) -> nn.Module:
    """A single-step cell that is equivalent to a layer of this kind."""
    if spec is None or spec.cell is None:
        raise Unsupported(
            "LanguageModel: zoneout, and weight_noise per step, need a single-step cell. Pass the "
            "name of the cell, or a class whose instances are (x, state) -> state."
        )
    noisy = injection.noise is not None and injection.feedback
    if spec.on_state is not None and noisy and injection.site == "read":
        raise Unsupported(
            "LanguageModel: a GRU with zoneout, or with weight_noise per step, has one tensor as "
            "its state, so noise that is fed back must act on the whole state. Use site='state', "
            "which warns, or feedback=False."
        )
    cell: nn.Module = spec.load_cell()(*sizes, **spec.arguments)
    return cell


def _noisy(step: Any, injection: Injection) -> Any:
    if injection.layers == ():  # excluded from noise, also from set_noise
        return step
    return Noisy(
        step,
        injection.noise,
        mode=injection.mode,
        feedback=injection.feedback,
        share=injection.share,
        generator=injection.generator,
    )


@contextmanager
def own_stream(generator: Generator | None) -> Iterator[None]:
    """Construct modules with a random stream derived from the model's, without advancing it.

    What constructors of torch draw is replaced. What a custom cell draws is kept, and must not
    repeat the random numbers that initialise the rest of the model.
    """
    with torch.random.fork_rng(devices=[]):
        source = torch.default_generator if generator is None else generator
        before = source.get_state()
        seed = torch.randint(2**62, (), generator=source, device=source.device)
        source.set_state(before)
        torch.default_generator.manual_seed(int(seed))
        yield
