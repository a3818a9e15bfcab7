"""A stack of recurrent layers with noise: what ``RNN``, ``LSTM`` and ``GRU`` have in common.

The stack is cut into spans, so that noise only occurs at the end of one. A layer whose noise is fed
back, or whose recurrence has a mask or another factor, is a span by itself, run by
:mod:`noisin.recurrent.kernels`. All other spans are as long as possible and run by torch's kernel,
with noise on what it emits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from noisin._util import checks, states, torch_state
from noisin.errors import InvalidTensor, Unsupported
from noisin.noise import Noise
from noisin.recurrent import drop_ins, functional, kernels
from noisin.recurrent import samples as noise_samples
from noisin.recurrent.functional import Mode, Share, States
from noisin.recurrent.given import Given, Places
from noisin.recurrent.injection import Injected, Injection, NoisyLayers, setting
from noisin.recurrent.kernels import Outline, Plan
from noisin.recurrent.kernels.plan import cached
from noisin.recurrent.layout import Layout
from noisin.recurrent.passes import Input, NoiseOf, Pass
from noisin.recurrent.torch_stack import TorchStack


class NoisyStack(Injected, TorchStack):
    """Torch's stack of recurrent layers with noise on the hidden state of each, or of the last."""

    noisy_layers: NoisyLayers = setting("layers")

    def __init__(
        self,
        *args: Any,
        noise: Noise | Sequence[Noise | None] | None = None,
        mode: Mode = "multiplicative",
        feedback: bool = True,
        noisy_layers: NoisyLayers = "all",
        share: Share = "step",
        generator: Generator | None = None,
        **kwargs: Any,
    ) -> None:
        name = type(self).__name__
        drop_ins.torch_arguments(name, self._torch_arguments, args, kwargs)
        super().__init__(*args, **kwargs)
        self._configure(
            Injection(noise, mode, feedback, noisy_layers, share, generator=generator, owner=name)
        )

    def _require(self, injection: Injection) -> None:
        injection.require_layers(self.num_layers)

    def extra_repr(self) -> str:
        """Torch's own line and the noise."""
        return f"{super().extra_repr()}, {self._noise_repr()}, noisy_layers={self.noisy_layers!r}"

    @torch_state.compiled_inside_others
    def forward(
        self,
        input: Input,
        hx: Any = None,
        *,
        eps: Tensor | None = None,
        weights: Mapping[str, Tensor] | None = None,
        read_mask: Tensor | None = None,
        keep: tuple[Tensor | float | None, Tensor | float | None] | None = None,
        update_mask: Tensor | None = None,
        samples: int = 1,
    ) -> Any:
        """Torch's ``forward``, with noise while training.

        Args:
            input: ``(T, N, F)``, ``(N, T, F)``, ``(T, F)`` or a PackedSequence, as torch's.
            hx: the initial state, as torch's.
            eps: the caller's centred noise, ``(num_layers · num_directions, T, N, H_out)``
                in the order of torch's h_n whatever ``batch_first`` is (without N for unbatched
                input). It is applied whenever given, in eval() too, in the caller's batch order and
                in absolute time, for the reverse direction as well. Padding and the slices of
                layers without noise are ignored.
            weights: tensors to use in place of parameters, by name, such as
                ``{"weight_hh_l0": w}``. Parameters that are not named are used as they are.
                Gradients flow to the tensors, not to the parameters that they replace.
            read_mask: a factor on what each recurrence reads of its previous hidden state: the
                gates read ``z_{t-1} * m_t``, while an LSTM's c and a GRU's carry stay whole. Its
                shape is that of ``eps``, or has T = 1 for one mask per sequence. With H_out times
                the number of gates as its last size (4 of an LSTM, 3 of a GRU), each gate has a
                mask of its own, in the order of ``weight_hh``. It is applied whenever given.
            keep: zoneout, ``(keep_h, keep_c)``: how much of the previous h and c is kept, as
                ``h_t = k z_{t-1} + (1 - k) h~_t``, before the noise. Each is a tensor as
                ``read_mask`` (keep_c with hidden_size units), a number in [0, 1] or None. An LSTM's
                ``h~_t`` reads the c that nothing was kept of; a GRU keeps its carry.
            update_mask: a factor on what is added to a memory, ``c_t = f c_{t-1} + m_t i g``, and
                in a GRU ``h_t = (1 - u) m_t n + u h_{t-1}``. Its shape is that of ``keep_c``.
            samples: the number K of noise samples of every row. The result is that of K copies of
                the input side by side (row n of sample k is row k·N + n, of the state too), and
                ``eps`` and all factors are for K·N rows. A recurrence that the samples have in
                common, because only what the last layer emits is random, is computed once. ``hx``
                has N rows, or K·N; it is common if all copies are equal and need no gradients.

        Returns:
            The noisy output z and the state that the recurrence carries on, laid out as torch's.
        """
        given = Given(eps, weights, read_mask, keep, update_mask)
        if drop_ins.is_symbolic(input, hx):
            K = None if samples == 1 else samples
            return drop_ins.symbolic_call(self, input, hx, **given._asdict(), samples=K)
        run = self._forward
        if torch_state.refused_as_an_rnn():  # and torch.compile would take what it calls bit by bit
            run = torch.compiler.disable(run)  # type: ignore[no-untyped-call]
        if samples == 1:
            return run(input, hx, given)
        drop_ins.sequence_input(type(self).__name__, input)
        return self._sampled(input, hx, samples, given)

    def _forward(self, input: Input, hx: Any, given: Given) -> Any:
        name = type(self).__name__
        drop_ins.sequence_input(name, input)
        if hx is not None:
            checks.state_parts(name, hx, len(self._state_sizes))
        eps = given.eps
        noisy = eps is not None or self._noise_acts()
        plain = not noisy and not given.alters and self._cell.torch_kernel is not None
        fused = self._cell.fused and not isinstance(input, PackedSequence)
        if plain and not kernels.replaces_torch(fused):
            # Not super(): the compiler cannot trace it in a frame that it resumes.
            return self._torch_class.forward(self, input, hx)
        layout = Layout.of(input, self.batch_first)
        layers = self._injecting_layers(eps is not None) if noisy else []
        like = layout.enter(input)
        noise = self._drawn(layout) if eps is None else self._given(eps, layout, layers, like)
        return self._run(input, hx, self._pass(given, layout, layers, noise, like))

    def _pass(
        self, given: Given, layout: Layout, layers: Collection[int], noise: NoiseOf, like: Tensor
    ) -> Pass:
        theirs = not kernels.replaces_torch(self._cell.fused and layout.packed is None)
        if not given.alters:
            return Pass(layout, layers, noise, self.all_weights, torch_kernel=theirs)
        count, sizes = self.num_layers * self._directions, (self._output_size, self.hidden_size)
        places, weights = Places(type(self).__name__, self._cell, count, *sizes), given.weights
        mask, factors = places.read_mask(given, layout, like), places.factors(given, layout, like)
        return Pass(layout, layers, noise, self._replaced(weights), mask, factors, theirs)

    def sample_eps(self, input: Input) -> Tensor:
        """Draw the noise of one forward pass, as ``forward`` takes it: to use a draw twice.

        The same seed gives what ``forward`` would draw, except for the dropout in between. Layers
        without noise and padding have zeros.
        """
        drop_ins.sequence_input(type(self).__name__, input)
        layout = Layout.of(input, self.batch_first)
        like, layers = layout.enter(input), self._injecting_layers(given=False)
        none = [like.new_zeros(*layout.lead, self._output_size)] * self._directions
        draw = self._drawn(layout)
        drawn = [draw(k, like) if k in layers else none for k in range(self.num_layers)]
        return layout.leave_steps(torch.stack([eps for parts in drawn for eps in parts]))

    # K samples of every row

    def _sampled(self, input: Any, hx: Any, K: int, given: Given) -> Any:
        """K samples: on one pass of the recurrence, if it is common to them."""
        dim = noise_samples.row_dimension(type(self).__name__, input, self.batch_first, K)
        N, eps = input.shape[dim], given.eps
        common = self.emits_all_noise(eps is not None) and given.is_common
        if not common or not states.is_common(hx, N, K):
            repeated = noise_samples.repeat_rows(input, K, dim)
            return self.forward(repeated, states.spread(hx, N, K), **given._asdict())
        layout = Layout.of(input, self.batch_first)
        all_rows = replace(layout, N=K * N)
        layers, like = [self.num_layers - 1], layout.enter(input)
        noise = self._drawn(all_rows) if eps is None else self._given(eps, all_rows, layers, like)
        clean = self._pass(given, layout, (), noise, like)
        output, state = self._run(input, states.sample(hx, N, 0), clean)
        h = layout.enter(output)
        z = noise_samples.inject(h, _concatenated(noise(layers[0], h)), self.noise_mode)
        return all_rows.leave(z), states.repeat(state, K)

    def emits_all_noise(self, given: bool = False) -> bool:
        """Whether all that is random now is the noise on what the last layer emits: strong mode."""
        noisy = self._injecting_layers(given) if given or self._noise_acts() else []
        return not self.feedback and not self._drops and noisy == [self.num_layers - 1]

    def is_certain(self) -> bool:
        """Whether nothing is random now."""
        return not self._drops and not self._noise_acts()

    @property
    def _drops(self) -> bool:
        return self.training and self.dropout > 0 and self.num_layers > 1

    # Which layers inject what

    def _injecting_layers(self, given: bool) -> list[int]:
        """The layers with noise."""
        return self.injection.places(self.num_layers, given)

    def _noise_acts(self) -> bool:
        return Injected._noise_acts(self) and bool(self._injecting_layers(given=False))

    def _given(self, eps: Tensor, layout: Layout, layers: list[int], like: Tensor) -> NoiseOf:
        D = self._directions
        used = [layer * D + d for layer in layers for d in range(D)]
        given = drop_ins.given_noise(
            type(self).__name__, eps, layout, self.num_layers * D, self._output_size, used, like
        )
        return lambda layer, like: [given[layer * D + d].to(like) for d in range(D)]

    def _drawn(self, layout: Layout) -> NoiseOf:
        def draw(layer: int, like: Tensor) -> list[Tensor]:
            if self.shard is not None and layout.packed is not None:
                raise Unsupported(
                    f"{type(self).__name__}: where processes share a batch, noise is drawn by "
                    f"column, and a PackedSequence has none. Pad the sequences."
                )
            law = self.injection.laws(self.num_layers)[layer]
            assert law is not None
            lead = layout.lead if self.share == "step" else (layout.N,)
            shape = (*lead, self._output_size)
            drawn = [self._draw(law, shape, like) for _ in range(self._directions)]
            return drawn if self.share == "step" else [layout.hold(eps) for eps in drawn]

        return draw

    # Running the stack

    def _run(self, input: Input, hx: Any, run: Pass) -> tuple[Input, Any]:
        x = run.layout.enter(input)
        state = self._initial_state(x, hx, run.layout)
        D = self._directions
        finals: list[States] = []
        for first, last in self._spans(run.layers, run.loops):
            # Tuples of lists: CPython keeps the memory of those that are made of iterators.
            part = tuple([s[first * D : (last + 1) * D] for s in state])
            emit = self._emit if last in run.layers else self._clean
            x, final = emit(first, last, x, part, run)
            if last < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
            finals.append(final)
        joined = finals[0] if len(finals) == 1 else map(torch.cat, zip(*finals, strict=True))
        state_n = tuple([run.layout.leave_state(s) for s in joined])
        return run.layout.leave(x), state_n if len(state_n) > 1 else state_n[0]

    def _emit(
        self, first: int, last: int, x: Tensor, state: States, run: Pass
    ) -> tuple[Tensor, States]:
        """Layers of which the last is noisy: what that one emits, before any dropout."""
        if self.feedback:
            return self._loop(last, x, state, run, run.noise)
        h, final = self._clean(first, last, x, state, run)
        return functional.inject(h, _concatenated(run.noise(last, h)), self.noise_mode), final

    def _clean(
        self, first: int, last: int, x: Tensor, state: States, run: Pass
    ) -> tuple[Tensor, States]:
        """Layers without noise, by torch's kernel unless their recurrence has a factor."""
        if run.loops:
            return self._loop(last, x, state, run, None)
        return self._kernel(first, last, x, state, run)

    def _spans(self, layers: Collection[int], loops: bool = False) -> list[tuple[int, int]]:
        """Cut the stack into (first, last) layers."""
        spans: list[tuple[int, int]] = []
        first = 0
        single = loops or self._cell.torch_kernel is None
        for layer in range(self.num_layers):
            loop_follows = self.feedback and layer + 1 in layers
            end = layer == self.num_layers - 1 or layer in layers or loop_follows
            if end or single:
                spans.append((first, layer))
                first = layer + 1
        return spans

    def _initial_state(self, x: Tensor, hx: Any, layout: Layout) -> States:
        layers = self.num_layers * self._directions
        if hx is None:
            state = tuple([x.new_zeros(layers, layout.N, size) for size in self._state_sizes])
        else:
            name = type(self).__name__
            state = drop_ins.initial_state(name, hx, layout, layers, self._state_sizes, x)
        self._update_flat_weights()
        self.check_input(x, None if layout.packed is None else layout.packed.batch_sizes)
        weight = self._flat_weights[0]
        if weight is not None and x.device != weight.device:
            raise InvalidTensor(
                f"{type(self).__name__}: expected an input on {weight.device}, as the weights, got "
                f"one on {x.device}. Move it with .to()."
            )
        return state

    def _loop(
        self, layer: int, x: Tensor, state: States, run: Pass, noise: NoiseOf | None
    ) -> tuple[Tensor, States]:
        """One layer whose recurrence has noise or factors: Algorithm 1, in each direction."""
        D, layout = self._directions, run.layout
        weights = [self._weights(run, layer * D + d) for d in range(D)]
        low = torch_state.autocast_dtype(x)
        if low is not None and self._casts_state(layout, x.device):
            x, state = x.to(low), tuple([s.to(low) for s in state])
            weights = [w.to(low) for w in weights]
        rows = x.flatten(0, -2)
        mode: Mode = "additive" if noise is None else self.noise_mode
        if noise is None:
            eps: Sequence[Tensor] = [state[0].new_zeros(rows.shape[0], self._output_size)] * D
        else:
            eps = [drawn.flatten(0, -2) for drawn in noise(layer, state[0])]
        zs, finals = [], []
        for d in range(D):
            plan = self._plan(mode, layout, reverse=d == 1)
            start = tuple([s[d] for s in state * 2])[: 1 + self._cell.carry]  # a GRU carries z
            factors = run.rows(layer * D + d, state[0])
            z, final = kernels.run(plan, rows, eps[d], start, weights[d], *factors)
            zs.append(z)
            finals.append(final[-len(state) :])
        z = _concatenated(zs)
        stacked = [torch.stack(parts) for parts in zip(*finals, strict=True)]
        return z.view(*layout.lead, z.shape[-1]), tuple(stacked)

    def _plan(self, mode: Mode, layout: Layout, reverse: bool) -> Plan | Outline:
        if torch_state.compiling():
            sizes = None if layout.packed is None else layout.packed.batch_sizes
            return Outline(self._cell, mode, sizes, reverse)
        return cached(self._cell, mode, layout.sizes, reverse)


def _concatenated(directions: list[Tensor]) -> Tensor:
    """Features side by side; a single direction is not copied."""
    return directions[0] if len(directions) == 1 else torch.cat(directions, dim=-1)
