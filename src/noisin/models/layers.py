"""A recurrent layer of any cell, with noise and other regularizers on its state.

A cell with kernels uses them. Its noise, recurrent dropout, zoneout, dropout of updates and random
weights compose, because the kernels accept factors on what the recurrence reads, keeps and adds,
and weights in place of its own. An affine cell is solved for all steps at once. Other cells, and
cells with zoneout, dropout inside their gates or noise on the weights of every step where the
kernels have none, run step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, get_args

import torch
from torch import Generator, Tensor, nn

from noisin._util import arguments, checks, states
from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.models import steps
from noisin.models.padding import without_padding
from noisin.models.steps import GateDropout
from noisin.recurrent import drop_ins
from noisin.recurrent.cell import CellSpec, find
from noisin.recurrent.cells import Noisy
from noisin.recurrent.convert import clean_twin
from noisin.recurrent.injection import Injection
from noisin.recurrent.layout import Layout
from noisin.recurrent.samples import repeat_rows
from noisin.recurrent.scanned import AffineCell, Scanned, is_affine
from noisin.recurrent.scans import ScanSite
from noisin.recurrent.stack import NoisyStack
from noisin.recurrent.unrolled import Unrolled
from noisin.regularizers.sequences import Dropout, Dropouts
from noisin.regularizers.synaptic import SynapticNoise
from noisin.regularizers.transitions import Zoneout, ZoneoutMasks
from noisin.regularizers.weights import RandomWeights, WeightDrop, WeightNoise
from noisin.regularizers.windowed import WindowCell

CellChoice = str | Callable[[int, int], Any]


class Layer(nn.Module):
    """A layer ``(T, N, F), state -> (T, N, H), state`` and what is random in it beside its noise.

    Args:
        rnn: one layer of noisin's RNN, LSTM or GRU, or a :class:`~noisin.Scanned` or
            :class:`~noisin.Unrolled` cell, which has regularizers of its own.
        dropout: applied to the ``h_{t-1}`` that the recurrence reads, not to carry and memory.
        zoneout: of what h and c keep, or None.
        updates: dropout of what is added to the memory of an LSTM or the state of a GRU, or None.
        weights: draws weights for each forward pass in place of those of ``rnn``, or None.
    """

    def __init__(
        self,
        rnn: nn.Module,
        dropout: Dropout,
        *,
        zoneout: ZoneoutMasks | None = None,
        updates: Dropout | None = None,
        weights: RandomWeights | None = None,
    ) -> None:
        super().__init__()
        self.rnn = rnn
        self.dropout = dropout
        self.zoneout = zoneout
        self.updates = updates
        self.weights = weights

    @property
    def draws(self) -> bool:
        """Whether masks of its rows are drawn at present; all rows share random weights."""
        drops = self.dropout.acts or (self.updates is not None and self.updates.acts)
        return drops or (self.zoneout is not None and self.zoneout.draws)

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Weights uniform on ±1/√H, biases zero; a custom cell keeps its initialisation."""
        with torch.no_grad():
            for module in self.rnn.modules():
                if isinstance(module, WindowCell | AffineCell):
                    module.reset_parameters(generator)
                if not isinstance(module, nn.RNNBase | nn.RNNCellBase):
                    continue
                bound = module.hidden_size**-0.5
                for name, parameter in module.named_parameters(recurse=False):
                    if name.startswith("bias"):
                        parameter.zero_()
                    else:
                        parameter.uniform_(-bound, bound, generator=generator)

    def forward(
        self, x: Tensor, state: Any = None, *, samples: int = 1, lengths: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """``(T, N, F)`` to ``(T, N, H)``, and the state; of K samples, as in a stack.

        Steps from ``lengths`` on, ``(N,)``, are padding that kernels leave out. What is emitted
        there is arbitrary.
        """
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
        given = self._given(x, rnn)
        if given and not isinstance(rnn, NoisyStack):  # a torch module, after noisin.revert
            rnn = clean_twin(rnn)
        if K > 1:
            given["samples"] = K
        elif samples == 1 and lengths is not None and isinstance(rnn, NoisyStack):
            return without_padding(rnn, x, state, lengths, given)
        z, state = rnn(x, state, **given)
        return z, state

    def _given(self, x: Tensor, rnn: nn.RNNBase) -> dict[str, Any]:
        """What a stack takes beside its input and state."""
        given: dict[str, Any] = {}
        if self.weights is not None and self.weights.acts:
            given["weights"] = self.weights({n: getattr(rnn, n) for n in rnn._flat_weights_names})
        if self.dropout.acts:
            given["read_mask"] = self.dropout.mask(x, rnn.hidden_size).unsqueeze(0)
        if self.zoneout is not None and self.zoneout.acts:
            given["keep"] = self.zoneout(x, rnn.hidden_size)
        if self.updates is not None and self.updates.acts:
            given["update_mask"] = self.updates.mask(x, rnn.hidden_size).unsqueeze(0)
        return given


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
    weight_drop: WeightDrop | None = None,
    weight_noise: WeightNoise | None = None,
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
        update_dropout: the rate ``(p,)``, or ``(p, locked)``, of the dropout of updates, for an
            LSTM or a GRU, or None.
        weight_drop: dropout of the recurrent weights, for a cell with kernels, or None.
        weight_noise: noise on the weights, or None.
        cell_arguments: arguments of the constructor of the cell.

    >>> z, (h, c) = layer("lstm", 2, 3, gate_dropout=(0.5, 0.4))(torch.zeros(5, 1, 2))
    >>> z.shape
    torch.Size([5, 1, 3])
    """
    dropout = Dropout(0.0) if dropout is None else dropout
    spec = find(cell) if isinstance(cell, str) else None
    build = _class(cell) if spec is None else spec.load()
    sizes, stacked = (input_size, hidden_size), _is_stack(build)
    steps.require_arguments(stacked, cell_arguments)
    _require_site(injection, spec, build)
    weights = _weights(weight_drop, weight_noise, injection.generator)
    per_step = weight_noise is not None and weight_noise.per_step
    if stacked and gate_dropout is None and not per_step:
        rnn = _stack(build, spec, sizes, injection, dropout)
        return Layer(
            rnn,
            dropout,
            zoneout=_zoneout(rnn, zoneout, injection.generator),
            updates=_updates(rnn, update_dropout, injection.generator),
            weights=weights,
        )
    if weights is not None or update_dropout is not None:
        raise Unsupported(
            "LanguageModel: weight_drop, weight_noise per sequence and update_dropout need a layer "
            "with kernels, and this layer runs step by step because of its cell, gate_dropout or "
            "weight_noise per step. Use one or the other."
        )
    if gate_dropout is not None:
        build = partial(steps.dropout_lstm, spec, gate_dropout)
    elif stacked:
        build = partial(_single, spec, injection)
    step = steps.step_cell(build, sizes, cell_arguments, dropout, injection.generator)
    if is_affine(step):
        scanned = Scanned.of(step, injection)
        if zoneout is None and not per_step:
            return Layer(scanned, Dropout(0.0))
        injection = _of_steps(scanned.injection)
    if weight_noise is not None and per_step:
        std, mode = weight_noise.std, weight_noise.mode
        step = SynapticNoise(step, std, mode, generator=injection.generator)
    if zoneout is not None:
        step = Zoneout(step, *steps.zoneout_rates(zoneout), generator=injection.generator)
    return Layer(Unrolled(_noisy(step, injection)), Dropout(0.0))


def _require_site(injection: Injection, spec: CellSpec | None, build: object) -> None:
    """Raise unless the noise can be at its site in this kind of cell."""
    if spec is None or spec.on_state is None:
        sites = ("read", *get_args(ScanSite)) if is_affine(build) else ("read",)
        checks.one_of("LanguageModel: site, for a cell that is not a GRU,", injection.site, sites)


def _of_steps(injection: Injection) -> Injection:
    """The settings of an affine cell that runs step by step, where noise is around the cell."""
    if injection.noise is not None and injection.site == "increment":
        raise Unsupported(
            "LanguageModel: zoneout and weight_noise per step make an affine cell run step by "
            "step, where noise is on its output or state, not on its increment. Use site='state' "
            "or 'output', or one without the other."
        )
    return injection


def _is_stack(build: object) -> bool:
    return isinstance(build, type) and issubclass(build, NoisyStack)


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


def _zoneout(
    rnn: NoisyStack, rates: tuple[float, float] | None, generator: Generator | None
) -> ZoneoutMasks | None:
    """The zoneout of a layer with kernels."""
    if rates is None:
        return None
    masks = ZoneoutMasks(*steps.zoneout_rates(rates), generator=generator)
    if masks.p_c and not rnn._cell.memory:
        raise InvalidValue(
            f"LanguageModel: p_c = {masks.p_c} of zoneout is for a memory c, and "
            f"{type(rnn).__name__} has none. Use p_h alone."
        )
    return masks


def _updates(rnn: NoisyStack, rates: object, generator: Generator | None) -> Dropout | None:
    """The dropout of the updates of a layer with kernels."""
    if rates is None:
        return None
    if rnn._cell.slots == 1:
        raise Unsupported(
            "LanguageModel: update_dropout is defined for an LSTM and a GRU. Use cell='lstm'."
        )
    return Dropout(*steps.update_rates(rates), generator)


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
            "LanguageModel: weight_noise per step needs a single-step cell. Pass the name of the "
            "cell, or a class whose instances are (x, state) -> state."
        )
    noisy = injection.noise is not None and injection.feedback
    if spec.on_state is not None and noisy and injection.site == "read":
        raise Unsupported(
            "LanguageModel: a GRU with weight_noise per step has one tensor as its state, so noise "
            "that is fed back must act on the whole state. Use site='state', which warns, or "
            "feedback=False."
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
