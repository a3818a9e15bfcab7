"""Which calls are recorded as CUDA graphs, and that a replay is the call; on a CPU, by a stub."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from noisin.errors import InvalidValue
from noisin.recurrent.kernels import graphs
from noisin.recurrent.kernels.graphs import GraphCache


class Recorder:
    """Counts recordings and replays; a replay runs the function over the same memory again."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, function: Callable[[], object]) -> Callable[[], object]:
        self.recorded += 1

        def replay() -> None:
            self.replayed += 1
            function()

        return replay


def accumulate(factor: int, total: Tensor, x: Tensor, absent: Tensor | None) -> tuple[Any, ...]:
    """Writes to its first tensor and returns another."""
    assert absent is None
    total.add_(factor * x)
    return 2 * total, None


def call(cache: GraphCache, x: Tensor, factor: int = 3) -> tuple[Tensor, Tensor]:
    """The sum that was written, and the result."""
    total = torch.ones_like(x)
    result, none = cache(accumulate, (factor,), (total, x, None), (0,))
    assert none is None
    assert result is not None
    return total, result


def test_the_first_call_runs_the_second_is_recorded_and_all_are_right() -> None:
    recorder = Recorder()
    cache = GraphCache(recorder)
    found = []
    for k in range(4):
        found.append(call(cache, torch.full((2,), float(k))))
        assert (recorder.recorded, recorder.replayed) == (min(k, 1), k)
    for k, (total, result) in enumerate(found):  # no replay writes to what another one returned
        assert total.tolist() == [1 + 3 * k] * 2
        assert result.tolist() == [2 + 6 * k] * 2


def test_what_a_recording_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    cache = GraphCache(recorder)

    def twice(*given: Any) -> int:
        call(cache, *given), call(cache, *given)
        return recorder.recorded

    assert twice(torch.ones(2)) == 1
    assert twice(torch.zeros(2)) == 1
    assert twice(torch.ones(3)) == 2
    assert twice(torch.ones(2).double()) == 3
    assert twice(torch.ones(2), 4) == 4
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high" if before == "highest" else "highest")
        assert twice(torch.ones(2)) == 5
    finally:
        torch.set_float32_matmul_precision(before)


def test_the_least_recently_used_is_forgotten() -> None:
    recorder = Recorder()
    cache = GraphCache(recorder, limit=2)
    for size in (1, 1, 2, 2, 1, 3, 3):  # 2 is the one that was not used
        call(cache, torch.ones(size))
    assert recorder.recorded == 3
    call(cache, torch.ones(1))
    assert recorder.recorded == 3
    call(cache, torch.ones(2)), call(cache, torch.ones(2))
    assert recorder.recorded == 4


def test_shapes_that_come_once_are_not_recorded_nor_remembered() -> None:
    recorder = Recorder()
    cache = GraphCache(recorder)
    for size in range(2 * graphs._SEEN):
        call(cache, torch.ones(size))
    assert recorder.recorded == 0
    assert len(cache._seen) == graphs._SEEN


def test_what_cannot_be_recorded_runs_and_is_not_tried_again() -> None:
    tried: list[int] = []

    def refuse(function: Callable[[], object]) -> Callable[[], object]:
        tried.append(1)
        raise RuntimeError("out of memory")

    cache = GraphCache(refuse)
    for _ in range(4):
        assert call(cache, torch.ones(2))[1].tolist() == [8, 8]
    assert len(tried) == 1


def test_inference_mode_and_training_share_a_recording() -> None:
    """Memory of inference mode could not be written to outside of it, nor the other way round."""
    cache = GraphCache(Recorder())
    for inference in (True, True, False, True):
        with torch.inference_mode(inference):
            assert call(cache, torch.ones(2))[1].tolist() == [8, 8]


def test_tensors_on_the_cpu_are_never_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("recorded")

    monkeypatch.setattr(graphs, "_graphs", refuse)
    x = torch.ones(2)
    for _ in range(3):
        graphs.run(accumulate, (3,), (torch.ones(2), x, None), (0,))


CUDA: Any = SimpleNamespace(device=torch.device("cuda"), nbytes=100)


@pytest.mark.parametrize(
    ("setting", "capturing", "hip", "usable"),
    [
        ("auto", False, None, True),
        ("off", False, None, False),
        ("auto", True, None, False),
        ("auto", False, "7.1", False),
    ],
)
def test_when_a_graph_is_used(
    monkeypatch: pytest.MonkeyPatch, setting: str, capturing: bool, hip: str | None, usable: bool
) -> None:
    monkeypatch.setenv("NOISIN_CUDA_GRAPHS", setting)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    monkeypatch.setattr(torch.version, "hip", hip)
    assert graphs._usable([CUDA]) is usable


def test_what_is_large_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its copies would cost memory, and its products take longer than their launches."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    most: Any = SimpleNamespace(device=torch.device("cuda"), nbytes=graphs.LARGEST - 100)
    assert graphs._usable([most, None, CUDA])
    assert not graphs._usable([most, CUDA, CUDA])


def test_no_graph_where_torch_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found: list[bool] = [graphs._usable([CUDA])]

    def note(x: Tensor) -> Tensor:
        found.append(graphs._usable([CUDA]))
        return x

    torch.func.vmap(note)(torch.ones(2))
    assert found == [True, False]


def test_an_unknown_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISIN_CUDA_GRAPHS", "on")
    with pytest.raises(InvalidValue, match="NOISIN_CUDA_GRAPHS.*'on'"):
        graphs._usable([CUDA])


def test_how_torch_is_asked_to_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a stream of its own, safe from other threads; with arguments that torch has."""
    asked = inspect.signature(torch.cuda.graph)
    done: list[str] = []

    @contextmanager
    def recording(*given: Any, **options: Any) -> Iterator[None]:
        bound = asked.bind(*given, **options).arguments
        assert bound["capture_error_mode"] == "thread_local"
        assert bound["stream"] == "a stream"
        done.append("begin")
        yield
        done.append("end")

    graph = SimpleNamespace(replay=lambda: done.append("replay"))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: graph)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: "a stream")
    monkeypatch.setattr(torch.cuda, "graph", recording)
    replay = graphs._record(lambda: done.append("run"))
    replay()
    assert done == ["begin", "run", "end", "replay"]
