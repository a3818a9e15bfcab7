"""Peak memory of training, each rival in a separate process.

``python -m benchmarks.memory RIVAL KERNEL WARM_UP O H N T STEP ...`` trains a model and prints, as
JSON, by how many bytes the memory of the process has peaked above what it held before the model was
made: once for each number of steps. What a process holds is what a user pays for: weights,
gradients, activations, the scratch of torch's libraries and what the allocator keeps. A model of
toy size runs WARM_UP steps first, so that the code of all that is in memory beforehand.

What is kept for later use grows for a while without anything being leaked, in two places:

- glibc's heap. Once a large block was freed, blocks of its size are cut out of the heap, which
  fragments: its peak rises for thousands of steps, that of a plain torch model as well, although
  the bytes in use after a step stay the same.
- CPython's free lists. Up to 2,000 freed tuples of each length are kept until a full collection,
  and a tuple that is made of an iterator adds one to them.

:func:`live_peaks` measures without both: whether the program itself uses more and more.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from benchmarks.models import STEPS, Shape
from noisin.recurrent import kernels
from noisin.training.runtime.products import chosen_products

# Larger blocks are mapped one by one, and returned when freed. glibc raises its own threshold with
# the blocks that are freed, but not one that was set.
MAPPED = {"MALLOC_MMAP_THRESHOLD_": str(32 * 1024)}
FREE_LIST = 2_000  # tuples of one length that CPython keeps
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peaks(rival: str, shape: Shape, steps: list[int], kernel: str = "auto") -> list[int]:
    """Peak memory after each number of steps, measured in a fresh process."""
    return _run(rival, kernel, 3, shape, steps, {})


def live_peaks(rival: str, shape: Shape, steps: list[int], kernel: str = "auto") -> list[int]:
    """The same without what glibc's heap and CPython's free lists keep for later use.

    The free lists are filled before, and blocks of 32 kB and more never come from the heap. Where
    the C library is not glibc, the latter has no effect.
    """
    return _run(rival, kernel, FREE_LIST, shape, steps, MAPPED)


def _run(
    rival: str,
    kernel: str,
    warm_up: int,
    shape: Shape,
    steps: list[int],
    environment: dict[str, str],
) -> list[int]:
    chosen_products()  # measured once per machine, which takes memory: here, not in the process
    numbers = [str(n) for n in (warm_up, shape.O, shape.H, shape.N, shape.T, *steps)]
    command = [sys.executable, "-m", "benchmarks.memory", rival, kernel, *numbers]
    run = subprocess.run(
        command, check=True, capture_output=True, encoding="utf-8", env=os.environ | environment
    )
    found: list[int] = json.loads(run.stdout)
    return found


def measure(rival: str, kernel: str, warm_up: int, shape: Shape, steps: list[int]) -> list[int]:
    """The same in this process."""
    with kernels.using(kernel):
        toy = STEPS[rival](Shape(O=50, H=16, N=4, T=5))
        for _ in range(warm_up):
            toy()
        before = reset_peak()
        step, done, found = STEPS[rival](shape), 0, []
        for wanted in sorted(steps):
            for _ in range(wanted - done):
                step()
            done = wanted
            found.append(max(1, peak() - before))
    return found


def reset_peak() -> int:
    """Reset the peak; return the bytes that the process uses now."""
    if CLEAR.exists():
        CLEAR.write_bytes(b"5")
        return field("VmRSS")
    return peak()


def peak() -> int:
    """The most bytes that the process has held."""
    if STATUS.exists():
        return field("VmHWM")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def field(name: str) -> int:
    """A field of the status of this process, in bytes."""
    (line,) = (
        line
        for line in STATUS.read_text(encoding="utf-8").splitlines()
        if line.startswith(f"{name}:")
    )
    return int(line.split()[1]) * 1024


def main(arguments: list[str]) -> None:
    """Measure the case given on the command line."""
    import torch

    torch.set_num_threads(min(2, os.cpu_count() or 1))
    rival, kernel, *sizes = arguments
    warm_up, O, H, N, T, *steps = map(int, sizes)  # noqa: E741
    print(json.dumps(measure(rival, kernel, warm_up, Shape(O=O, H=H, N=N, T=T), steps)))


if __name__ == "__main__":
    main(sys.argv[1:])
