"""Record the noise of a model and use it again, in calls of other lengths and for other rows.

Recurrent policy gradients need it: a rollout calls the policy step by step, the update calls it for
whole sequences of some of the environments, and the ratio of the two probabilities is right only if
the noise is the same in both.

A GRU with ``site="read"`` returns its clean carry, which the first step of the next call reads: it
is replayed exactly by calls of the lengths that were recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from noisin._util import checks, torch_state
from noisin.errors import InvalidValue, Unsupported
from noisin.recurrent.cells import NoisyCell
from noisin.recurrent.injection import Injected, noise_on
from noisin.recurrent.stack import NoisyStack


def replay(model: nn.Module) -> Replay:
    """Return a recorder of the noise of all noise-injected modules of ``model``.

    >>> import noisin
    >>> rnn = noisin.LSTM(2, 3, noise=noisin.noise.Gaussian(0.5))
    >>> x, noises = torch.randn(4, 5, 2), noisin.replay(rnn)
    >>> with noises.record():  # a rollout, step by step
    ...     state, z = None, []
    ...     for t in range(4):
    ...         z_t, state = rnn(x[t : t + 1], state)
    ...         z.append(z_t)
    >>> with noises.play(rows=[0, 3]):  # the update: all steps of two of the rows
    ...     again, _ = rnn(x[:, [0, 3]])
    >>> torch.allclose(again, torch.cat(z)[:, [0, 3]], atol=1e-6)
    True
    """
    return Replay(model)


class Replay:
    """The noise of a model's modules by name, and contexts that record it and play it back.

    Attributes:
        eps: of each module the recorded noise, ``(L, T, N, H)``: of its L noisy layers and
            directions, the T steps of all calls one after another, and N rows. Time comes before
            the batch whatever ``batch_first`` is. It may be stored, moved and replaced.
    """

    def __init__(self, model: nn.Module) -> None:
        checks.require_module("replay", model)
        self.model, self.eps = model, dict[str, Tensor]()
        if not any(isinstance(module, Injected) for module in model.modules()):
            raise InvalidValue(
                f"replay: {type(model).__name__} contains no noise-injected module. Convert it "
                f"first: noisin.convert(model, noise=...)."
            )

    @contextmanager
    def record(self) -> Iterator[None]:
        """Switch the noise on, and record what is drawn in place of what was recorded before."""
        tracks = {name: _Track(name, module) for name, module in self._modules()}
        with noise_on(self.model), _sources(self._modules(), tracks, "record"):
            yield
        self.eps = {name: track.joined() for name, track in tracks.items() if track.draws}

    @contextmanager
    def play(self, steps: Any = slice(None), rows: Any = slice(None)) -> Iterator[None]:
        """Switch the noise on, and give out ``eps[:, steps, rows]`` in place of fresh noise.

        Each call gets as many steps as it has, from where the previous call ended. ``steps`` and
        ``rows`` are slices, lists or tensors of numbers. For sequences that begin at different
        steps both are matrices ``(T, N)``.
        """
        tracks = {}
        for name, module in self._modules():
            chosen = self.eps[name][:, steps, rows] if name in self.eps else None
            if chosen is not None and chosen.dim() != 4:
                raise InvalidValue(
                    f"replay: expected steps and rows to choose noise (L, T, N, H), got "
                    f"{tuple(chosen.shape)} of {tuple(self.eps[name].shape)}. Pass slices, lists, "
                    f"or two matrices (T, N) of numbers."
                )
            tracks[name] = _Track(name, module, chosen)
        with noise_on(self.model), _sources(self._modules(), tracks, "play"):
            yield

    def _modules(self) -> list[tuple[str, Injected]]:
        return [(n, m) for n, m in self.model.named_modules() if isinstance(m, Injected)]


class _Track:
    """The noise of one module: its draws take turns between its layers and directions."""

    def __init__(self, name: str, module: Injected, eps: Tensor | None = None) -> None:
        self.name, self.eps, self.draws = name, eps, 0
        self.count = 1
        if isinstance(module, NoisyStack):
            self.count = len(module._injecting_layers(given=False)) * module._directions
        self.parts: list[list[Tensor]] = [[] for _ in range(self.count)]
        self.given = [0] * self.count  # steps

    def record(self, module: Injected, law: Any, shape: Any, like: Tensor, shared: bool) -> Tensor:
        """Fresh noise, of which a copy is kept."""
        eps = module._fresh(law, shape, like, shared)
        self.parts[self._turn()].append(eps.detach().clone().view(self._steps(module, shape)))
        return eps

    def play(self, module: Injected, _: Any, shape: Any, like: Tensor, __: bool) -> Tensor:
        """The next steps of what was recorded."""
        T, *rest = self._steps(module, shape)
        turn = self._turn()
        start = self.given[turn]
        if self.eps is None:
            raise InvalidValue(
                f"replay: no noise of {self.name!r} was recorded. Use record() first."
            )
        available = (self.eps.shape[1] - start, *self.eps.shape[2:])
        if available[0] < T or tuple(rest) != available[1:]:
            raise InvalidValue(
                f"replay: {self.name!r} asks for the noise of {T} steps, {rest[0]} rows and "
                f"{rest[1]} units, and there are {available[0]} steps left, {available[1]} rows "
                f"and {available[2]} units. Choose steps and rows as the call has them."
            )
        self.given[turn] = start + T
        return self.eps[turn, start : start + T].to(like).reshape(tuple(shape))

    def joined(self) -> Tensor:
        """All steps of all calls."""
        sizes = {part.shape[1] for parts in self.parts for part in parts}
        if len(sizes) > 1:
            raise InvalidValue(
                f"replay: {self.name!r} was called with batches of {sorted(sizes)} rows while "
                f"recording. Record calls of one batch."
            )
        return torch.stack([torch.cat(parts) for parts in self.parts])

    def _turn(self) -> int:
        self.draws += 1
        return (self.draws - 1) % self.count

    def _steps(self, module: Injected, shape: Any) -> tuple[int, int, int]:
        """A shape as ``(T, N, H)``."""
        if torch_state.in_backward():
            raise Unsupported(
                "replay: gradient checkpointing calls modules a second time, and their noise would "
                "be that of other steps. Do without checkpointing."
            )
        if isinstance(module, NoisyCell) and len(shape) < 3:  # one step; of all, see below
            return 1, shape[0] if len(shape) > 1 else 1, shape[-1]
        if module.share == "sequence" or len(shape) != 3:
            what = "share='sequence'" if module.share == "sequence" else "a PackedSequence"
            raise Unsupported(
                f"replay: noise is recorded by step and row, and {self.name!r} has {what}. Use "
                f"share='step' and padded sequences."
            )
        T, N, H = shape
        return T, N, H


@contextmanager
def _sources(
    modules: list[tuple[str, Injected]], tracks: Mapping[str, _Track], method: str
) -> Iterator[None]:
    try:
        for name, module in modules:
            module._source = getattr(tracks[name], method)
        yield
    finally:
        for _, module in modules:
            module.__dict__.pop("_source", None)
