"""The benchmarks: that they interleave, count and judge rightly, and run at toy size."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu, queue, report
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.bars import BARS, Bar, judge
from benchmarks.evaluation import compare_evaluation
from benchmarks.growth import compare_growth, exponent
from benchmarks.latent import compare_latent
from benchmarks.layers import SIZES, compare_clean, compare_layers
from benchmarks.models import Shape
from benchmarks.padding import compare_padding
from benchmarks.regularizers import BY_STEPS, IN_KERNELS, compare_regularizers
from benchmarks.regularizers import SIZES as REGULARIZED
from benchmarks.rivals import Problem, Size
from benchmarks.sampling import compare_samplers
from benchmarks.shapes import SAMPLED, compare_shapes, packed, shapes
from benchmarks.steps import compare_endurance, compare_memory, compare_steps
from benchmarks.timing import Comparison, compare
from tests.pairwise import PRODUCTS

TOY = Size("LSTM", 8, 2, T=3)
SHAPE = Shape(O=50, H=8, N=2, T=3)
TEXT = Shape(O=50, H=8, N=1, T=3)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    yield
    torch.set_num_threads(1)


def test_rivals_take_turns_and_are_told_apart() -> None:
    calls: list[str] = []

    def rival(name: str, seconds: float) -> None:
        calls.append(name)
        time.sleep(seconds)

    found = compare(
        "toy",
        {"fast": lambda: rival("fast", 0.02), "slow": lambda: rival("slow", 0.06)},
        budget=0.5,
    )
    assert 0.2 < found.ratio("fast", over="slow").median < 0.6
    rounds = calls[4:]  # after the warm-up
    firsts = {tuple(dict.fromkeys(rounds[k : k + 2])) for k in range(0, len(rounds) - 1, 2)}
    assert firsts <= {("fast", "slow"), ("slow", "fast"), ("fast",), ("slow",)}
    assert abs(rounds.count("fast") - rounds.count("slow")) <= len(rounds) // 3


def test_a_ratio_is_within_a_round() -> None:
    drifting = Comparison("toy", {"a": [1.0, 10.0, 100.0], "b": [2.0, 20.0, 200.0]})
    assert drifting.ratio("a", over="b") == (0.5, 0.5, 0.5)


def test_the_bars_name_what_is_measured() -> None:
    cases = {str(size) for size in SIZES}
    for bar in BARS:
        if bar.case.split()[0] in ("LSTM", "GRU", "Elman"):
            assert bar.case in cases
    assert {b.rival for b in BARS if b.over == "loop" and b.case in cases} == {"c"}
    others = {f"samples in strong mode of {SAMPLED}", *map(str, shapes())}
    assert others == {bar.case for bar in BARS if " of LSTM 650" in bar.case} - {
        "evaluation of LSTM 650 × 80"
    }
    for kind, rivals in (("regularized ", IN_KERNELS), ("step by step, ", BY_STEPS)):
        measured = {(f"{kind}{size}", rival) for size in REGULARIZED for rival in rivals}
        assert measured >= {(bar.case, bar.rival) for bar in BARS if bar.case.startswith(kind)}


def test_the_shapes_are_what_their_names_say() -> None:
    for shape in shapes():
        name = str(shape)
        assert name.startswith("one step of") == (not shape.back)
        assert name.startswith("one step") == (shape.size.T == 1)
        assert name.startswith("packed") == shape.packed
    sizes = packed(torch.zeros(35, 20, 1)).batch_sizes.tolist()
    assert (len(sizes), sizes[0], sizes[4], sizes[-1]) == (35, 20, 20, 1)


@pytest.mark.parametrize(("limit", "code"), [(2.0, 0), (0.1, 1)])
def test_the_exit_code_says_whether_a_bar_is_missed(
    limit: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(judge, "__defaults__", ([Bar("toy", "a", "b", limit)],))
    toy = {"toy": lambda: iter([Comparison("toy", {"b": [2.0], "a": [1.0]})])}
    assert main(["toy"], toy) == code
    assert ("missed by 400.0 %" in capsys.readouterr().out) == bool(code)


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spead"]) == 2
    assert "layers" in capsys.readouterr().out


def test_an_unknown_part_of_the_queue_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert queue.main(["workers", "--help"]) == 2
    assert capsys.readouterr().out == "usage: python -m benchmarks.queue [runs] [workers]\n"


def test_results_are_kept_with_the_machine_that_made_them(tmp_path: Path) -> None:
    comparisons = [Comparison("toy", {"torch": [1.0, 2.0], "c": [0.5, 1.0]})]
    verdicts = judge(comparisons, [Bar("toy", "c", "torch", 0.4)])
    path = report.save(report.as_json(comparisons, verdicts), "table", tmp_path)
    record = json.loads(path.read_text())
    assert record["date"] in path.name
    assert {"processor", "threads", "flags", "library", "versions"} <= record.keys()
    assert record["bars"][0]["met"] is False
    assert report.from_json(record)[0].rounds == comparisons[0].rounds


def test_the_limit_does_the_products_of_a_layer() -> None:
    """Six products of 2·T·N·H·4H operations, forward and backward, are all that it does.

    The counter does not see the two that are added in place, step by step.
    """
    from torch.utils.flop_counter import FlopCounterMode

    parts = list(Problem(TOY)._products())
    assert len(parts) == 6
    with FlopCounterMode(display=False) as counter:
        for own, *_ in parts:
            own()
    assert counter.get_total_flops() == 4 * 2 * TOY.T * TOY.N * TOY.H * 4 * TOY.H
    Problem(TOY).limit()()


RUNS: dict[str, Callable[[], Any]] = {
    "layers": lambda: compare_layers([TOY], budget=0.01),
    "shapes": lambda: compare_shapes(shapes(8, 2, 3, rows=(1, 2)), TOY, budget=0.01),
    "regularizers": lambda: compare_regularizers([TOY], SHAPE, TEXT, budget=0.01),
    "clean": lambda: compare_clean([Size("GRU", 8, 2, T=3)], budget=0.01),
    "latent": lambda: compare_latent((3,), 0.01, hidden_size=8, z_size=2, mlp_size=4),
    "padding": lambda: compare_padding(T=20, H=8, budget=0.01),
    "sampling": lambda: compare_samplers(TOY, budget=0.01),
    "evaluation": lambda: compare_evaluation([TOY], budget=0.01),
    "steps": lambda: compare_steps([SHAPE], budget=0.01),
    "memory": lambda: compare_memory([SHAPE], steps=1, runs=1),
    "endurance": lambda: compare_endurance(SHAPE, (1, 2, 4)),
    "growth": lambda: compare_growth({"T": (2, 4), "vocabulary": (10, 20)}, TOY, budget=0.01),
}
LONG = ("memory", "endurance", "shapes", "growth")  # the first two in processes of their own


@pytest.mark.long
def test_every_benchmark_runs() -> None:
    assert RUNS.keys() == BENCHMARKS.keys()
    for name, run in RUNS.items():
        if name in LONG and not PRODUCTS:
            continue
        comparisons = list(run())
        assert comparisons
        text = report.markdown(comparisons, judge(comparisons))
        assert all(c.case in text for c in comparisons)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_there_is_nothing_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    """Its values and its speed run at toy size in tests/recurrent/kernels/interpreted/values.py."""
    assert gpu.main() == 2
    assert capsys.readouterr().out.startswith("There is no GPU that torch can use")


def test_an_exponent_is_that_of_the_curve() -> None:
    curve = Comparison("cubic", {str(n): [float(n) ** 3] for n in (1, 2, 4)}, "s/token")
    assert exponent(curve).median == pytest.approx(3.0)
