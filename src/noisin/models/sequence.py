"""A sequence model for words, notes, counts or values: an encoder, layers, and a head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, cast

import torch
from torch import Tensor, nn

from noisin._util import arguments, states
from noisin.data.batch import Batch
from noisin.errors import InvalidType, Unsupported
from noisin.models.base import Head, Loss, State, mean_over_scored, remember
from noisin.models.layers import Layer
from noisin.models.padding import require_none, worth_leaving_out
from noisin.models.sharing import is_shared
from noisin.recurrent.samples import NOISE_SAMPLES, repeat_rows, takes
from noisin.regularizers.terms import Term, Trace


class SequenceModel(nn.Module):
    """Predicts each target from the inputs up to it: ``p(x_t | z_t)`` with a noisy state z.

    Args:
        encoder: maps the inputs of a batch to those of the first layer, ``(T, N, F)``.
        layers: modules ``(x, state) -> (z, state)``: such as :class:`noisin.LSTM`, or any cell
            wrapped in :class:`noisin.recurrent.unrolled.Unrolled`.
        head: maps z to a prediction.
        dropouts: modules ``x -> x``, one before the layers and one after each of them.
        skip: whether the head reads the sum of what all layers emit, not the last one alone.
        projection: a module ``z -> z`` between the last dropout and the head, or None.
        terms: penalties to add to the loss.

    A state is a tuple of the states of the layers, followed by the memory of the head, if any.

    All methods take ``samples``, the number K of noise samples of every row: the result is that of
    K copies of the rows side by side, with states of K·N rows. In strong mode, where the samples
    differ by the noise on the last layer alone, encoder and layers are computed once for all of
    them; the head is not.

    >>> import torch, noisin
    >>> from noisin.likelihoods import Bernoulli
    >>> from noisin.models import Dense, Values
    >>> model = SequenceModel(Values(88), [noisin.LSTM(88, 10)], Dense(10, 88, Bernoulli()))
    >>> notes = torch.zeros(6, 2, 88)
    >>> loss = model.loss(Batch(notes[:-1], notes[1:]))
    >>> loss.count, loss.mean.shape
    (10, torch.Size([]))
    """

    encoder: nn.Module
    layers: nn.ModuleList
    head: Head
    skip: bool = False
    projection: nn.Module | None

    def __init__(
        self,
        encoder: nn.Module,
        layers: Iterable[nn.Module],
        head: Head,
        *,
        dropouts: Iterable[nn.Module] = (),
        skip: bool = False,
        projection: nn.Module | None = None,
        terms: Sequence[Term] = (),
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.layers = nn.ModuleList(layers)
        self.head = head
        self.dropouts = nn.ModuleList(
            dropouts or [nn.Identity() for _ in range(len(self.layers) + 1)]
        )
        self.skip = skip
        self.projection = projection
        self.terms = tuple(terms)

    @property
    def identity(self) -> dict[str, Any]:
        """What the record of a run recognises the model by: its parts as they are shown."""
        return {"parts": repr(self).splitlines(), "terms": [repr(term) for term in self.terms]}

    def encode(
        self, x: Tensor, state: State = None, *, samples: int = 1, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """What the head reads, ``(T, N, H)``, and the state of the layers.

        ``lengths`` are those of :class:`~noisin.data.Batch`: what is read of padding is arbitrary.
        """
        trace, state = self._trace(x, state, **_asked(self._trace, samples, lengths))
        return trace.read[-1], state

    def forward(self, x: Tensor, state: State = None, *, samples: int = 1) -> tuple[Tensor, State]:
        """The prediction of the head for each step, such as natural parameters, and the state."""
        z, carried = self.encode(x, state, **_asked(self.encode, samples))
        before, x = self._memory(state, x, samples), repeat_rows(x, samples)
        memory, after = remember(self.head, z, x, before)
        return self.head.predict(z, memory), _with_memory(carried, after)

    def predict_next(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        """The prediction after the last step of x alone, ``(N, O)``, and the state."""
        z, memory, state = self.encode_next(x, state)
        return self.head.predict(z, memory)[-1], state

    def encode_next(self, x: Tensor, state: State = None) -> tuple[Tensor, State, State]:
        """What the head reads after the last step of x, ``(1, N, H)``; its memory; the state."""
        z, carried = self.encode(x, state)
        memory, after = remember(self.head, z, x, self._memory(state, x, 1))
        return z[-1:], memory, _with_memory(carried, after)

    def loss(
        self, batch: Batch, state: State = None, *, samples: int = 1, each: bool = False
    ) -> Loss:
        """The mean nll of the scored targets, and the terms.

        With ``each``, the loss also has the nll of each target, at the cost of computing the
        logits of a large vocabulary twice.
        """
        if self.training:
            require_none(self, batch)
        asked = _asked(self._trace, samples, worth_leaving_out(batch))
        trace, carried = self._trace(batch.x, state, **asked)
        before, batch = self._memory(state, batch.x, samples), batch.repeat(samples)
        nll = None
        if each:
            nll, memory = trace.head.nll(trace.read[-1], batch, before)
            mean = mean_over_scored(nll, batch)
        else:
            mean, memory = trace.head.mean_nll(trace.read[-1], batch, before)
        trace = replace(trace, memory=before, encoder=self.encoder)
        terms = {term.name: term(trace, batch) for term in self._all_terms()}
        return Loss(mean, batch.count, terms, _with_memory(carried, memory), nll, trace)

    def _all_terms(self) -> tuple[Term, ...]:
        """The terms of the model and those of its head."""
        return (*self.terms, *getattr(self.head, "terms", ()))

    def log_prob(
        self, batch: Batch, state: State = None, *, temperature: float = 1.0, samples: int = 1
    ) -> tuple[Tensor, State]:
        """``log p`` of each target, ``(T, N)``, and the state.

        ``temperature`` divides the natural parameters.
        """
        asked = _asked(self.read, samples)
        log_p, _, state = self.read(batch, state, temperature=temperature, **asked)
        return log_p, state

    def read(
        self, batch: Batch, state: State = None, *, temperature: float = 1.0, samples: int = 1
    ) -> tuple[Tensor, Tensor, State]:
        """As :meth:`log_prob`, and what the head read, ``(T, N, H)``."""
        asked = _asked(self.encode, samples, worth_leaving_out(batch))
        z, carried = self.encode(batch.x, state, **asked)
        before, batch = self._memory(state, batch.x, samples), batch.repeat(samples)
        nll, memory = self.head_at(temperature).nll(z, batch, before)
        return -nll, z, _with_memory(carried, memory)

    def head_at(self, temperature: float) -> Head:
        """The head with all natural parameters divided by ``temperature``."""
        if temperature == 1:
            return self.head
        if not hasattr(self.head, "tempered"):
            raise Unsupported(
                f"{type(self).__name__}: {type(self.head).__name__} has no method tempered. Use "
                f"temperature 1."
            )
        head: Head = self.head.tempered(temperature)
        return head

    def _trace(
        self, x: Tensor, state: State, *, samples: int = 1, lengths: Tensor | None = None
    ) -> tuple[Trace, State]:
        if samples != 1:
            arguments.whole(f"{type(self).__name__}: samples", samples, what=NOISE_SAMPLES)
            before, N = tuple(self._states(state)), x.shape[1]
            if is_shared(self.encoder, self.layers, self.dropouts, x, before, samples):
                return self._shared_trace(x, states.sample(before, N, 0), samples)
            x, state = repeat_rows(x, samples), states.spread(before, N, samples)
            lengths = None if lengths is None else lengths.repeat(samples)
        z = self.dropouts[0](self.encoder(x))
        emitted, read, carried = [], [], []
        parts = zip(self.layers, self.dropouts[1:], self._states(state), strict=True)
        for layer, dropout, part in parts:
            asked = _asked(layer.forward, 1, lengths) if isinstance(layer, Layer) else {}
            h, after = layer(z, part, **asked)
            emitted.append(h)
            z = dropout(self._output(emitted))
            read.append(z)
            carried.append(after)
        read[-1:] = map(self._projected, read[-1:])
        return self._traced(tuple(emitted), tuple(read)), tuple(carried)

    def _output(self, emitted: Sequence[Tensor]) -> Tensor:
        """What is read of the layers so far: the last one, or the sum of all after the last."""
        if self.skip and len(emitted) == len(self.layers):
            return reduce(torch.add, emitted)
        return emitted[-1]

    def _projected(self, z: Tensor) -> Tensor:
        return z if self.projection is None else cast(Tensor, self.projection(z))

    def _shared_trace(self, x: Tensor, state: Sequence[Any], K: int) -> tuple[Trace, State]:
        """The trace of K samples whose layers are the same up to the noise of the last one."""
        z = self.dropouts[0](self.encoder(x))
        emitted, carried = [], []
        for layer, dropout, before in zip(
            self.layers[:-1], self.dropouts[1:-1], state[:-1], strict=True
        ):
            h, after = layer(z, before)
            z = dropout(h)
            emitted.append(repeat_rows(h, K) if self.skip or self._all_terms() else h)
            carried.append(states.repeat(after, K))
        h, after = self.layers[-1](z, state[-1], samples=K)
        read = self._projected(self.dropouts[-1](self._output((*emitted, h))))
        # No dropout acts before the last one: the other layers are read as they emit.
        return self._traced((*emitted, h), (*emitted, read)), (*carried, after)

    def _traced(self, emitted: tuple[Tensor, ...], read: tuple[Tensor, ...]) -> Trace:
        parameters = dict(self.named_parameters()) if self.terms else {}
        return Trace(emitted, read, self.head, parameters)

    def _states(self, state: State) -> Sequence[Any]:
        """The state of each layer."""
        if state is None:
            return (None,) * len(self.layers)
        if not isinstance(state, tuple | list) or not 0 <= len(state) - len(self.layers) <= 1:
            got = f"{len(state)} parts" if isinstance(state, tuple | list) else type(state).__name__
            raise InvalidType(
                f"{type(self).__name__}: expected a state with one part for each of "
                f"{len(self.layers)} layers, got {got}. Pass what a previous call returned, or "
                f"None for zeros."
            )
        return state[: len(self.layers)]

    def _memory(self, state: State, x: Tensor, samples: int) -> State:
        """The memory of the head, if there is one, of all samples of the rows of x."""
        if state is None or len(state) <= len(self.layers):
            return None
        return state[-1] if samples == 1 else states.spread(state[-1], x.shape[1], samples)


def _asked(
    method: Callable[..., Any], samples: int, lengths: Tensor | None = None
) -> dict[str, Any]:
    """The arguments of a method, which a subclass may define without them."""
    asked: dict[str, Any] = {} if samples == 1 else {"samples": samples}
    if lengths is not None and takes(method, "lengths"):
        asked["lengths"] = lengths
    return asked


def _with_memory(carried: tuple[Any, ...], memory: State) -> State:
    return carried if memory is None else (*carried, memory)
