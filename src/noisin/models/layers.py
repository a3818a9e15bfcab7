"""A recurrent layer of any cell, with noise and recurrent dropout on its state.

A cell with kernels uses them. Its noise, its recurrent dropout and its zoneout compose, because the
kernels accept factors on what the recurrence reads and keeps. Other cells, and cells with dropout
inside their gates, run step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Generator, Tensor, nn

from noisin._util import checks, states
from noisin._util.settings import construct
from noisin.errors import InvalidType, InvalidValue, Unsupported
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
from noisin.regularizers.transitions import Zoneout, ZoneoutMasks

CellChoice = str | Callable[[int, int], Any]


class Layer(nn.Module):
    """A layer ``(T, N, F), state -> (T, N, H), state`` with recurrent dropout and zoneout.

    Args:
        rnn: one layer of noisin's RNN, LSTM or GRU, or an :class:`~noisin.Unrolled` cell.
        dropout: applied to the ``h_{t-1}`` that the recurrence reads, not to carry and memory.
        zoneout: of what h and c keep; None if there is none, or if the cell has it.
    """

    def __init__(
        self, rnn: nn.Module, dropout: Dropout, zoneout: ZoneoutMasks | None = None
    ) -> None:
        super().__init__()
        self.rnn = rnn
        self.dropout = dropout
        self.zoneout = zoneout

    @property
    def draws(self) -> bool:
        """Whether masks of its own are drawn at present; its noise is the RNN's."""
        return self.dropout.acts or (self.zoneout is not None and self.zoneout.draws)

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
        rnn, K = self.rnn, 1
        if samples != 1 and isinstance(rnn, NoisyStack) and not self.draws:
            K = samples  # copies of the rows, if need be
        elif samples != 1:
            x, state = repeat_rows(x, samples), states.spread(state, x.shape[1], samples)
        if not isinstance(rnn, nn.RNNBase):
            z, state = rnn(x, state)
            return z, state
        if state is not None and K == 1:
            sizes = (rnn.hidden_size,) * (2 if isinstance(rnn, nn.LSTM) else 1)
            drop_ins.initial_state("LanguageModel", state, Layout.of(x, False), 1, sizes, x)
        given = self._factors(x, rnn.hidden_size)
        if given and not isinstance(rnn, NoisyStack):  # a torch module, after noisin.revert
            rnn = clean_twin(rnn)
        if K > 1:
            given["samples"] = K
        z, state = rnn(x, state, **given)
        return z, state

    def _factors(self, x: Tensor, size: int) -> dict[str, Any]:
        """What a stack takes beside its input and state."""
        given: dict[str, Any] = {}
        if self.dropout.acts:
            given["read_mask"] = self.dropout.mask(x, size).unsqueeze(0)
        if self.zoneout is not None and self.zoneout.acts:
            given["keep"] = self.zoneout(x, size)
        return given


def layer(
    cell: CellChoice,
    input_size: int,
    hidden_size: int,
    *,
    injection: Injection = Injection(),  # noqa: B008 - frozen
    dropout: Dropout | None = None,
    zoneout: tuple[float, float] | None = None,
    gate_dropout: tuple[float, float] | None = None,
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

    >>> z, (h, c) = layer("lstm", 2, 3, gate_dropout=(0.5, 0.4))(torch.zeros(5, 1, 2))
    >>> z.shape
    torch.Size([5, 1, 3])
    """
    dropout = Dropout(0.0) if dropout is None else dropout
    spec = find(cell) if isinstance(cell, str) else None
    build = _class(cell) if spec is None else spec.load()
    rates = None if zoneout is None else _pair("zoneout", "(p_h, p_c)", zoneout)
    if isinstance(build, type) and issubclass(build, NoisyStack) and gate_dropout is None:
        rnn = _stack(build, spec, (input_size, hidden_size), injection, dropout)
        return Layer(rnn, dropout, _masks(rnn, rates, injection))
    if dropout.p:
        raise Unsupported(
            "LanguageModel: recurrent dropout needs a layer with kernels, and this layer runs step "
            "by step because of its cell or gate_dropout. Use dropout.recurrent = 0."
        )
    if gate_dropout is not None:
        step = _dropout_lstm(spec, input_size, hidden_size, gate_dropout, injection)
    else:
        step = construct("LanguageModel: cell", build, input_size, hidden_size)
        checks.require_cell("LanguageModel: cell", step)
    if rates is not None:
        step = Zoneout(step, *rates, generator=injection.generator)
    return Layer(Unrolled(_noisy(step, injection)), dropout)


def recurrent_layers(
    cell: CellChoice, sizes: Sequence[int], injection: Injection, dropout: Dropouts, **options: Any
) -> nn.ModuleList:
    """Stacked layers, from ``sizes[0]`` inputs to ``sizes[-1]`` outputs.

    ``options`` are passed to :func:`layer`: ``zoneout``, ``gate_dropout``.
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


def _masks(
    rnn: NoisyStack, rates: tuple[float, float] | None, injection: Injection
) -> ZoneoutMasks | None:
    """The zoneout of a layer with kernels."""
    if rates is None:
        return None
    masks = ZoneoutMasks(*rates, generator=injection.generator)
    if masks.p_c and not rnn._cell.memory:
        raise InvalidValue(
            f"LanguageModel: p_c = {masks.p_c} of zoneout is for a memory c, and "
            f"{type(rnn).__name__} has none. Use p_h alone."
        )
    return masks


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
