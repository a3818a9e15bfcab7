"""CUDA graphs of a recurrence: its launches recorded once, and replayed where a shape repeats.

A step of the recurrence is two or three short kernels, and launching them one by one takes longer
than running them. A graph launches the whole loop at once. It reads and writes the memory that it
was recorded with, so the tensors of a call are copied there and the results copied back.

The first call of a shape runs as it is, the second is recorded. A process keeps the last
:data:`LIMIT` graphs, each with about as much memory as one layer takes; a layer of more than
:data:`LARGEST` bytes, whose products take longer than their launches, is not recorded. Set
``NOISIN_CUDA_GRAPHS=off`` to launch every kernel by itself.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from noisin._util import checks, torch_state

Tensors = Sequence[Tensor | None]
Function = Callable[..., tuple[Tensor | None, ...]]
Replay = Callable[[], object]

LIMIT = 8  # forward and backward of four shapes
LARGEST = 2**28
_SEEN = 256  # shapes that have come once
CHOICES = ("auto", "off")

_logger = logging.getLogger("noisin.kernels")


def run(
    function: Function, settings: tuple[Hashable, ...], tensors: Tensors, written: tuple[int, ...]
) -> tuple[Tensor | None, ...]:
    """``function(*settings, *tensors)``, by a graph where one can be used.

    The function writes into the tensors whose indices are ``written``, and returns new ones.
    """
    if not _usable(tensors):
        return function(*settings, *tensors)
    return _graphs(function, settings, tensors, written)


def capturing() -> bool:
    """Whether a CUDA graph is being recorded on the current stream."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _usable(tensors: Tensors) -> bool:
    """On a CUDA device, not too large, and nobody else is recording or compiling."""
    choice = os.environ.get("NOISIN_CUDA_GRAPHS", "auto")
    checks.one_of("NOISIN_CUDA_GRAPHS", choice, CHOICES)
    first = tensors[0]
    on_cuda = first is not None and first.device.type == "cuda" and torch.version.hip is None
    small = sum(t.nbytes for t in tensors if t is not None) <= LARGEST
    elsewhere = capturing() or torch_state.recording()
    return choice == "auto" and on_cuda and small and not elsewhere


def _record(function: Callable[[], object]) -> Replay:
    """Record what a function launches on the current device; nothing runs until it is replayed."""
    graph = torch.cuda.CUDAGraph()
    # torch's default stream for this is of one device for ever. An allocation in another thread,
    # such as that of a data loader, must not spoil the recording.
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        function()
    return graph.replay


class Recorded:
    """One recorded call: its own copy of every tensor, and a way to run it again."""

    def __init__(
        self,
        record: Callable[[Callable[[], object]], Replay],
        function: Function,
        settings: tuple[Hashable, ...],
        tensors: Tensors,
        written: tuple[int, ...],
    ) -> None:
        self._written = written
        self._results: tuple[Tensor | None, ...] = ()

        def call() -> None:
            self._results = function(*settings, *self._tensors)

        # A tensor of inference mode could not be written to outside of it.
        with torch.inference_mode(False), torch.no_grad():
            self._tensors = [None if t is None else torch.empty_like(t) for t in tensors]
            self._replay = record(call)

    def __call__(self, tensors: Tensors) -> tuple[Tensor | None, ...]:
        """Run it on these tensors."""
        for own, given in zip(self._tensors, tensors, strict=True):
            if own is not None and given is not None:
                own.copy_(given)
        self._replay()
        for k in self._written:
            own, given = self._tensors[k], tensors[k]
            if own is not None and given is not None:
                given.copy_(own)
        return tuple(None if t is None else t.clone() for t in self._results)


class GraphCache:
    """Recorded calls by what they depend on, the least recently used forgotten first.

    Args:
        record: how to record a function, and get one that runs it again.
        limit: how many recorded calls to keep.
    """

    def __init__(
        self, record: Callable[[Callable[[], object]], Replay] = _record, limit: int = LIMIT
    ) -> None:
        self._record, self._limit = record, limit
        self._seen: OrderedDict[Hashable, None] = OrderedDict()
        self._recorded: OrderedDict[Hashable, Recorded | None] = OrderedDict()
        # One stream runs what is queued in order, so two threads must not queue in between.
        self._lock = Lock()

    def __call__(
        self,
        function: Function,
        settings: tuple[Hashable, ...],
        tensors: Tensors,
        written: tuple[int, ...],
    ) -> tuple[Tensor | None, ...]:
        """``function(*settings, *tensors)``, from the second time on by a graph."""
        key = (function, settings, _kind(tensors))
        with self._lock:
            if key not in self._recorded and self._noticed(key):
                self._recorded[key] = self._attempt(function, settings, tensors, written)
                if len(self._recorded) > self._limit:
                    self._recorded.popitem(last=False)
            recorded = self._recorded.get(key)
            if recorded is not None:
                self._recorded.move_to_end(key)
                return recorded(tensors)
        return function(*settings, *tensors)

    def _noticed(self, key: Hashable) -> bool:
        """Whether this key has come before."""
        if key in self._seen:
            del self._seen[key]
            return True
        self._seen[key] = None
        if len(self._seen) > _SEEN:
            self._seen.popitem(last=False)
        return False

    def _attempt(self, *call: Any) -> Recorded | None:
        try:
            return Recorded(self._record, *call)
        except RuntimeError as error:  # CUDA's, such as too little memory
            _logger.debug("the recurrence runs without a CUDA graph: %s", error)
            return None


def _kind(tensors: Tensors) -> Hashable:
    """All that a recorded call depends on beside the values of its tensors."""
    kinds = tuple(None if t is None else (t.dtype, t.shape, t.stride(), t.device) for t in tensors)
    first = tensors[0]
    stream = None
    if first is not None and first.device.type == "cuda":
        stream = torch.cuda.current_stream(first.device).cuda_stream
    matmul = torch.backends.cuda.matmul
    precision = (
        matmul.fp32_precision,
        matmul.allow_fp16_reduced_precision_reduction,
        matmul.allow_bf16_reduced_precision_reduction,
        torch.are_deterministic_algorithms_enabled(),
    )
    return kinds, stream, precision


_graphs = GraphCache()
