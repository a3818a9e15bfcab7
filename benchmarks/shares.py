"""``python -m benchmarks.shares LSTM 64 80``: where the time of one noisy layer goes."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.rivals import Problem, Size
from noisin.noise import Gaussian
from noisin.recurrent.kernels import layer, native

CALLS, WARM_UP = 200, 5


@contextmanager
def timed(owner: Any, name: str, part: str, seconds: dict[str, float]) -> Iterator[None]:
    """Add what calls of a function take to the seconds of a part."""
    function: Callable[..., Any] = getattr(owner, name)

    def measured(*args: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **options)
        finally:
            seconds[part] += time.perf_counter() - start

    with patch.object(owner, name, measured):
        yield


def shares(size: Size, calls: int = CALLS) -> dict[str, float]:
    """The share of each part in forward and backward of a layer by the C kernel.

    The rest is Python, autograd and copies.
    """
    run, seconds = Problem(size).noisy("c"), defaultdict[str, float](float)
    for _ in range(WARM_UP):
        run()
    with ExitStack() as stack:
        stack.enter_context(timed(layer, "LAYER", "products", seconds))
        stack.enter_context(timed(native, "forward", "recurrence", seconds))
        stack.enter_context(timed(native, "backward", "recurrence", seconds))
        stack.enter_context(timed(Gaussian, "sample", "noise", seconds))
        start = time.perf_counter()
        for _ in range(calls):
            run()
        total = time.perf_counter() - start
    found = {part: taken / total for part, taken in seconds.items()}
    return found | {"the rest": 1 - sum(found.values())}


def _positive(word: str) -> bool:
    return word.isdecimal() and int(word) > 0


def main(words: list[str]) -> int:
    """Print the shares of the layer that the words name; the exit code."""
    match words:
        case [("LSTM" | "GRU" | "RNN") as cell, *sizes] if (
            list(map(_positive, sizes)) == [True] * 2
        ):
            torch.set_num_threads(2)
            size = Size(cell, *map(int, sizes))
            found = shares(size)
            print(f"{size}:", ", ".join(f"{part} {share:.0%}" for part, share in found.items()))
            return 0
    print("usage: python -m benchmarks.shares LSTM|GRU|RNN UNITS ROWS, such as LSTM 64 80")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
