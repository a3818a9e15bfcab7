"""A recurrent layer of any cell, with noise and recurrent dropout on its state.

A cell with kernels uses them. Its noise and its recurrent dropout compose, because the kernels
accept a mask on what the recurrence reads. Other cells, and cells with zoneout or dropout inside
their gates, run step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn

from noisin._util import states
from noisin.errors import InvalidType, Unsupported
from noisin.models import steps
from noisin.models.steps import GateDropout
from noisin.recurrent import drop_ins
from noisin.recurrent.cell import CellSpec, find
from noisin.recurrent.cells import Noisy
from noisin.recurrent.convert import clean_twin
from noisin.recurrent.injection import Injection
from noisin.recurrent.layout import Layout
from noisin.recurrent.samples import repeat_rows
from noisin.recurrent.stack import NoisyStack
from noisin.recurrent.unrolled import Unrolled
from noisin.regularizers.sequences import Dropout, Dropouts
from noisin.regularizers.transitions import Zoneout
from noisin.regularizers.windowed import WindowCell

CellChoice = str | Callable[[int, int], Any]


class Layer(nn.Module):
    """A layer ``(T, N, F), state -> (T, N, H), state`` with recurrent dropout.

    Args:
        rnn: one layer of noisin's RNN, LSTM or GRU, or an :class:`~noisin.Unrolled` cell.
        dropout: applied to the ``h_{t-1}`` that the recurrence reads, not to carry and memory.
    """

    def __init__(self, rnn: nn.Module, dropout: Dropout) -> None:
        super().__init__()
        self.rnn = rnn
        self.dropout = dropout

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Weights uniform on ±1/√H, biases zero; a custom cell keeps its initialisation."""
        with torch.no_grad():
            for module in self.rnn.modules():
                if isinstance(module, WindowCell):
                    module.reset_parameters(generator)
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
        rnn = self.rnn
        if samples != 1:
            if isinstance(rnn, NoisyStack) and not self.dropout.acts:
                z, state = rnn(x, state, samples=samples)
                return z, state
            x, state = repeat_rows(x, samples), states.spread(state, x.shape[1], samples)
        if state is not None and isinstance(rnn, nn.RNNBase):
            sizes = (rnn.hidden_size,) * (2 if isinstance(rnn, nn.LSTM) else 1)
            drop_ins.initial_state("LanguageModel", state, Layout.of(x, False), 1, sizes, x)
        if not self.dropout.acts or not isinstance(rnn, nn.RNNBase):
            z, state = rnn(x, state)
            return z, state
        if not isinstance(rnn, NoisyStack):  # a torch module, after noisin.revert
            rnn = clean_twin(rnn)
        mask = self.dropout.mask(x, rnn.hidden_size).unsqueeze(0)
        z, state = rnn(x, state, read_mask=mask)
        return z, state


def layer(
    cell: CellChoice,
    input_size: int,
    hidden_size: int,
    *,
    injection: Injection = Injection(),  # noqa: B008 - frozen
    dropout: Dropout | None = None,
    zoneout: tuple[float, float] | None = None,
    gate_dropout: tuple[float, float] | GateDropout | None = None,
    update_dropout: tuple[float] | tuple[float, bool] | None = None,
    cell_arguments: Mapping[str, Any] = {},
) -> Layer:
    """Build a layer.

    Args:
        cell: a name of :data:`~noisin.recurrent.names.CELL_NAMES`, ``"package.module:Class"``, or a
            class ``Cell(input_size, hidden_size)`` whose instances are ``(x, state) -> state``.
        input_size, hidden_size: the sizes of the layer.
        injection: how the noise is injected.
        dropout: applied to what the recurrence reads, for a cell with kernels or a
            :class:`~noisin.regularizers.windowed.WindowCell`.
        zoneout: the rates ``(p_h, p_c)`` of :class:`~noisin.regularizers.Zoneout`, or None.
        gate_dropout: the rates ``(x, h)`` of the paper's eight masks inside an LSTM,
            :class:`~noisin.regularizers.DropoutLSTMCell`, or None.
        update_dropout: the rate ``(p,)``, or ``(p, locked)``, of the dropout of updates, or None.
        cell_arguments: arguments of the constructor of the cell.

    >>> z, (h, c) = layer("lstm", 2, 3, gate_dropout=(0.5, 0.4))(torch.zeros(5, 1, 2))
    >>> z.shape
    torch.Size([5, 1, 3])
    """
    dropout = Dropout(0.0) if dropout is None else dropout
    spec = find(cell) if isinstance(cell, str) else None
    build = _class(cell) if spec is None else spec.load()
    stacked = isinstance(build, type) and issubclass(build, NoisyStack)
    sizes = (input_size, hidden_size)
    steps.require_arguments(stacked, cell_arguments)
    if stacked and zoneout is None and gate_dropout is None and update_dropout is None:
        return Layer(_stack(build, spec, sizes, injection, dropout), dropout)
    if update_dropout is not None:
        build, cell_arguments = steps.update_dropout(spec, update_dropout, gate_dropout)
        _require_one_state(spec, injection, "update_dropout masks")
    elif gate_dropout is not None:
        build = partial(steps.dropout_lstm, spec, gate_dropout)
    elif stacked:
        build = partial(_single, spec, injection)
    step = steps.step_cell(build, sizes, cell_arguments, dropout, injection.generator)
    if zoneout is not None:
        p_h, p_c = steps.settings(steps.ZoneoutRates, "zoneout", "(p_h, p_c)", zoneout)
        step = Zoneout(step, p_h, p_c, generator=injection.generator)
    return Layer(Unrolled(_noisy(step, injection)), Dropout(0.0))


def recurrent_layers(
    cell: CellChoice, sizes: Sequence[int], injection: Injection, dropout: Dropouts, **options: Any
) -> nn.ModuleList:
    """Stacked layers, from ``sizes[0]`` inputs to ``sizes[-1]`` outputs.

    ``options`` are passed to :func:`layer`: ``zoneout``, ``cell_arguments`` and others.
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


def _class(cell: object) -> Callable[..., Any]:
    if not callable(cell) or isinstance(cell, nn.Module):
        raise InvalidType(
            f"LanguageModel: cell must be a name, 'package.module:Class', or a class "
            f"Cell(input_size, hidden_size), got {cell!r:.60}. Each layer creates its own cell."
        )
    return cell


def _single(spec: CellSpec | None, injection: Injection, *sizes: int) -> nn.Module:
    """A single-step cell that is equivalent to a layer of this kind."""
    if spec is None or spec.cell is None:
        raise Unsupported(
            "LanguageModel: zoneout wraps a single-step cell. Pass the name of the cell, or a "
            "class whose instances are (x, state) -> state."
        )
    _require_one_state(spec, injection, "zoneout keeps")
    cell: nn.Module = spec.load_cell()(*sizes, **spec.arguments)
    return cell


def _require_one_state(spec: CellSpec | None, injection: Injection, what: str) -> None:
    noisy = injection.noise is not None and injection.feedback
    if spec is not None and spec.on_state is not None and noisy and injection.site == "read":
        raise Unsupported(
            f"LanguageModel: {what} the whole state of a GRU, so noise that is fed back must "
            f"act on the whole state. Use site='state', which warns, or feedback=False."
        )


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
