"""Random public calls with one or two wrong arguments: each succeeds or gets one clear message.

``NOISIN_FUZZED_CALLS`` is the number of calls per seed, ``NOISIN_FUZZED_SEEDS`` that of seeds.
"""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import noisin
from noisin._util import checks
from noisin.errors import InvalidType
from tests.calls import (
    latent,
    laws,
    modules,
    neighbours,
    scans,
    series,
    texts,
    theory,
    weights,
    windowed,
)
from tests.calls.call import Call, Change, fault, raised, random_changes

PARTS = (modules, laws, theory, texts, weights, windowed, scans, latent, series, neighbours)
CALLS = [call for part in PARTS for call in part.CALLS]
COUNT = int(os.environ.get("NOISIN_FUZZED_CALLS", "1500"))
SEEDS = range(int(os.environ.get("NOISIN_FUZZED_SEEDS", "1")))
ROOM = 4 * 2**30  # bytes beside what the process has: large sizes are refused, not allocated

# Public, and without arguments of a user's choice.
NOT_CALLED = {
    *("Estimate", "Risk", "Regularizer", "Unbiasedness", "Facts", "Batch"),  # results
    *("Corpus", "Window", "Loss", "Observation", "Score", "Unit"),  # plain values
    *("Head", "Trainable", "Task"),  # protocols
    *("Linear", "Words", "Music", "Characters"),  # made from parts that are checked
    *("Plan", "autocasts", "chosen", "kernel_for", "run"),  # of kernels, which modules call
    *("Likelihood", "LocationScale", "Noise", "Family"),  # bases
    "Interrupted",  # an error
}


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    """A tensor of 10¹² entries must not be allocated where the system promises more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_right_arguments_are_taken(call: Call) -> None:
    assert raised(call.run, call.right()) is None


@pytest.mark.parametrize("arguments", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_arguments_get_one_clear_message(seed: int, arguments: int) -> None:
    assert [*faults(CALLS, COUNT // arguments, seed, arguments)] == []


def faults(calls: list[Call], count: int, seed: int, arguments: int = 1) -> Iterator[str]:
    """What is wrong with how random calls take wrong arguments."""
    draw = random.Random(f"{seed} {arguments}")
    torch.manual_seed(seed)
    for _ in range(count):
        call = draw.choice(calls)
        changes = random_changes(draw, call, arguments)
        problem = fault(call, changes)
        if problem is not None:
            yield f"{call.name}, {changes}: {problem}"


@pytest.mark.parametrize("name", [n for n in noisin._MODULES if n not in ("errors", "functional")])
def test_every_public_function_is_called(name: str) -> None:
    """All but the errors, and the bare reference, which other modules call."""
    module = getattr(noisin, name)
    called = {w for call in CALLS for w in call.name.replace("(", " ").replace(".", " ").split()}
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    functions = {n for n in names if callable(getattr(module, n)) and _is_of(module, n)}
    assert functions - called <= NOT_CALLED
    assert {n for n in noisin.__all__ if callable(getattr(noisin, n))} <= called


def _is_of(module: ModuleType, name: str) -> bool:
    home: str = getattr(getattr(module, name), "__module__", "")
    return home.startswith(module.__name__)


def test_a_call_that_fails_inside_is_found() -> None:
    def broken(x: Any) -> Any:
        return x.shape

    call = Call("broken", broken, {"x": lambda: torch.zeros(2)})
    assert fault(call, (Change("x", "None"),)) == (
        "AttributeError: 'NoneType' object has no attribute 'shape'"
    )
    assert fault(call, (Change("x", "tensor ()"),)) is None


def test_only_the_error_of_torchs_counterpart_is_passed_on() -> None:
    x = {"x": lambda: torch.zeros(2)}

    def refusing(error: Exception) -> Any:
        def run(x: Any) -> None:
            raise error

        return run

    def judged(ours: Exception, theirs: Exception) -> bool:
        call = Call("drop-in", refusing(ours), x, torch=refusing(theirs))
        return fault(call, (Change("x", "None"),)) is None

    assert judged(RuntimeError("shape"), RuntimeError("shape"))
    assert not judged(RuntimeError("shape"), RuntimeError("other"))
    assert not judged(RuntimeError("shape"), ValueError("shape"))
    assert not judged(TypeError("inside"), TypeError("inside"))
    assert judged(InvalidType("ours"), ValueError("other"))


@pytest.mark.parametrize(
    "check", ["require_tensors", "require_generator", "state_parts", "sizes", "require_model"]
)
def test_without_a_check_there_are_faults(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unchecked = {"sizes": lambda _, shape: shape, "state_parts": lambda _, state, __: state}
    monkeypatch.setattr(checks, check, unchecked.get(check, lambda *_, **__: None))
    assert next(faults(CALLS, 2400, seed=1), None) is not None
