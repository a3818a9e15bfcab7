"""``python -m benchmarks [NAME ...]``: measure, compare with the bars, and say by how much.

Without names everything runs, the figures are kept in ``benchmarks/results/``, and the picture in
the docs is drawn anew. The exit code is 1 where a bar is missed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from benchmarks import report
from benchmarks.bars import judge
from benchmarks.evaluation import compare_evaluation
from benchmarks.growth import compare_growth
from benchmarks.latent import compare_latent
from benchmarks.layers import compare_clean, compare_layers
from benchmarks.padding import compare_padding
from benchmarks.regularizers import compare_regularizers
from benchmarks.sampling import compare_samplers
from benchmarks.shapes import compare_shapes
from benchmarks.steps import compare_endurance, compare_memory, compare_steps
from benchmarks.timing import CALM, Comparison
from noisin.training.runtime.products import chosen_products

THREADS = 2
ROOT = Path(__file__).parents[1]
Benchmarks = Mapping[str, Callable[[], Iterator[Comparison]]]
BENCHMARKS: Benchmarks = {
    "layers": compare_layers,
    "clean": compare_clean,
    "shapes": compare_shapes,
    "regularizers": compare_regularizers,
    "latent": compare_latent,
    "padding": compare_padding,
    "sampling": compare_samplers,
    "evaluation": compare_evaluation,
    "steps": compare_steps,
    "memory": compare_memory,
    "endurance": compare_endurance,
    "growth": compare_growth,
}


def main(names: list[str], benchmarks: Benchmarks = BENCHMARKS, root: Path = ROOT) -> int:
    """Run the named benchmarks, or all; the exit code."""
    unknown = [name for name in names if name not in benchmarks]
    if unknown:
        print(f"no benchmark is called {unknown[0]!r}; there are {', '.join(benchmarks)}.")
        return 2
    torch.set_num_threads(THREADS)
    chosen_products()  # on first use they are measured, and the first case would seem to be slow
    comparisons = [
        comparison
        for name in names or benchmarks
        for comparison in narrated(name, benchmarks[name]())
    ]
    verdicts = judge(comparisons)
    text = report.markdown(comparisons, verdicts)
    print(f"\n{text}")
    if not names:
        record = report.as_json(comparisons, verdicts)
        path = report.save(record, text, root / "benchmarks" / "results")
        draw(comparisons, record, root / "docs" / "speed.svg")
        print(f"kept in {path.relative_to(root)}")
    missed = [v for v in verdicts if not v.met]
    for verdict in missed:
        print(f"{verdict.bar}: {verdict.ratio.median:.3f}, bar {verdict.bar.limit:.2f}, {verdict}")
    print(f"{len(verdicts) - len(missed)} of {len(verdicts)} bars met")
    return 1 if missed else 0


def narrated(name: str, comparisons: Iterator[Comparison]) -> Iterator[Comparison]:
    """Say what was measured, as soon as it was."""
    start = time.perf_counter()
    for comparison in comparisons:
        first, *others = comparison.rounds
        ratios = "  ".join(f"{r} {comparison.ratio(r, first).median:.3f}" for r in others)
        rounds = f"{len(comparison.rounds[first])} rounds"
        took = f"{time.perf_counter() - start:.0f} s"
        print(f"{name}: {comparison.case} ({rounds}, {took}): {first} 1  {ratios}", flush=True)
        if comparison.noise > CALM:
            print(f"  others took {100 * comparison.noise:.0f} % of the processors meanwhile")
        yield comparison


def draw(comparisons: list[Comparison], record: dict[str, object], path: Path) -> None:
    """Draw the picture, where there is matplotlib."""
    try:
        from benchmarks.plot import draw as draw_picture
    except ImportError:
        return
    title = "{processor}, {threads} threads, {date}".format(**record)
    draw_picture(comparisons, title, path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
